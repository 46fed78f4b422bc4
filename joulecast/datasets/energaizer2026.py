def import_energaizer2026(folder): return []
