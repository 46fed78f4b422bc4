#!/bin/sh
# The MLflow server, in the container of compose.yaml or on a machine without containers.
#
#   sh serve.sh                      # SQLite and a folder below $ROOT (./mlflow-data); login if $ADMIN_PASSWORD is set
#
# $STORE       runs and registry: sqlite:////..., or postgresql+psycopg2://USER@HOST/DATABASE
# $USERS       users, if there is a login: another database, or a file
# $PGPASSWORD  password of PostgreSQL; or $PGPASSFILE, a file of passwords. Never in $STORE or $USERS: the list of
#              processes shows these to everybody on the machine
# $ARTIFACTS   models: a folder, or s3://BUCKET (with $AWS_ACCESS_KEY_ID, $MLFLOW_S3_ENDPOINT_URL, ...)
# $HOST, $PORT where it listens; 127.0.0.1:5000, and in the container all addresses
# $TLS_CERT, $TLS_KEY   files of a certificate and its key: it speaks HTTPS then
set -eu
umask 077

ROOT=${ROOT:-$PWD/mlflow-data}
STORE=${STORE:-sqlite:///$ROOT/mlflow.db}
USERS=${USERS:-sqlite:///$ROOT/users.db}
ARTIFACTS=${ARTIFACTS:-$ROOT/artifacts}
PORT=${PORT:-5000}
if [ -f /.dockerenv ]; then HOST=${HOST:-0.0.0.0}; else HOST=${HOST:-127.0.0.1}; fi
mkdir -p "$ROOT"
for uri in "$STORE" "$USERS"; do
    case $uri in *://*:*@*)
        echo "the address of a database holds a password: set \$PGPASSWORD, and leave it out" >&2
        exit 2 ;;
    esac
done

# Ten processes otherwise, where two do.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false

# Tables of a new or older MLflow are brought up to date here, not while it serves.
python -m mlflow db upgrade "$STORE"

set -- --host "$HOST" --port "$PORT" --backend-store-uri "$STORE" --artifacts-destination "$ARTIFACTS"
if [ -n "${ADMIN_PASSWORD:-}" ]; then
    : "${MLFLOW_FLASK_SERVER_SECRET_KEY:?a login needs a secret key: openssl rand -hex 24}"
    MLFLOW_AUTH_CONFIG_PATH=${MLFLOW_AUTH_CONFIG_PATH:-$ROOT/auth.ini}
    export MLFLOW_AUTH_CONFIG_PATH
    rm -f "$MLFLOW_AUTH_CONFIG_PATH"
    # Whoever logs in may read; an administrator grants more.
    cat > "$MLFLOW_AUTH_CONFIG_PATH" <<END
[mlflow]
default_permission = ${DEFAULT_PERMISSION:-READ}
database_uri = $USERS
admin_username = admin
admin_password = $ADMIN_PASSWORD
END
    set -- --app-name basic-auth "$@"
fi
if [ -n "${TLS_CERT:-}" ]; then
    set -- "$@" --uvicorn-opts "--ssl-certfile ${TLS_CERT} --ssl-keyfile ${TLS_KEY:?a certificate needs its key}"
fi
# One command of many processes: signals reach it, and it ends them.
exec python -m mlflow server "$@"
