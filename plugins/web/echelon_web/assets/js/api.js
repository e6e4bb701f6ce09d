// Asks the service. The token is kept for this tab alone.

const KEY = "echelon-token";

export class Refused extends Error {
  constructor(status, code, reason) {
    super(reason);
    this.status = status;
    this.code = code;
  }
}

/** @type {(reason: string) => void} */
let onUnauthenticated = () => {};

export function whenUnauthenticated(action) {
  onUnauthenticated = action;
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

export function headers() {
  const known = token.get();
  return known === null ? {} : { Authorization: `Bearer ${known}` };
}

// Returns the response of a request that was not refused. `path` is relative to the page.
export async function open(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { ...headers(), ...options.headers }, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "no-answer", "The service does not answer.");
  }
  if (response.ok) return response;
  const { code, reason } = await fault(response);
  if (response.status === 401) onUnauthenticated(token.get() === null ? "" : reason);
  throw new Refused(response.status, code, reason);
}

async function fault(response) {
  try {
    const { error } = await response.json();
    return { code: error.code, reason: error.path ? `${error.path}: ${error.reason}` : error.reason };
  } catch {
    return { code: "unknown", reason: `The service answered ${response.status}.` };
  }
}

export async function get(path) {
  return (await open(path)).json();
}

// Sends a change, or asks what it would do. Returns the answer, or null if there is none.
export async function send(method, path, body, { dryRun = false } = {}) {
  const options = { method };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json" };
  }
  const response = await open(dryRun ? `${path}?dry_run=true` : path, options);
  return response.status === 204 ? null : response.json();
}
