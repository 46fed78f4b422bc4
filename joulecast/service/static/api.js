// The API of the service, relative to the page, so that it works behind any prefix.

const TOKEN = "joulecast-token";

export class Refusal extends Error {
  constructor(problem) {
    super(problem.title || "the service does not answer");
    this.problem = problem;
  }
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

async function send(path, body, type, accept, signal) {
  const headers = { Accept: accept };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = type;
  let response;
  try {
    response = await fetch(`v1/${path}`, { method: body ? "POST" : "GET", headers, signal, body });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal({ title: "the service does not answer", hint: "is it still running?" });
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({ title: `the service answers ${response.status}` }));
  throw new Refusal({ ...problem, status: response.status });
}

let amended = (question) => question;
/** Have questions changed before they are sent. */
export const amend = (change) => { amended = change; };

const post = (path, question, accept, signal) => send(path, question && JSON.stringify(amended(question)), "application/json", accept, signal);

export async function ask(path, question, signal) {
  return (await post(path, question, "application/json", signal)).json();
}

/** Ask for each GPU. Those that are refused are told, and stop nobody else; unless all are, and nothing else is shown. */
export async function askEach(gpus, question, alsoNone = false) {
  const found = await Promise.all(gpus.map((gpu) => question(gpu).catch((error) => {
    if (error instanceof Refusal && error.problem.status === 422) return error;
    throw error;
  })));
  const works = found.map((each) => !(each instanceof Refusal));
  if (!alsoNone && !works.some(Boolean)) throw found[0];
  return {
    gpus: gpus.filter((_, i) => works[i]), predictions: found.filter((_, i) => works[i]),
    refused: gpus.flatMap((gpu, i) => (works[i] ? [] : [`${gpu.short_name}: ${found[i].message}`])),
  };
}

/** The operations of a model in a file. */
export async function upload(file, options) {
  const query = new URLSearchParams([["name", file.name], ...options]);
  return (await send(`extract/file?${query}`, file, "application/octet-stream", "application/json")).json();
}

/** Save an answer as a CSV file. */
export async function download(path, question, name) {
  const blob = await (await post(path, question, "text/csv")).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
