// The state of the service as the page knows it. Views subscribe; they hear of changes together, a few times a second.

const KEYS = {
  status: () => "status",
  policy: () => "policy",
  flows: () => "flows",
  switches: (one) => one.name,
  links: (one) => `${one.a}/${one.b}`,
  ports: (one) => `${one.switch}/${one.port}`,
  jobs: (one) => one.name,
  events: (one) => one.request,
};
const PAUSE_MS = 200;

export class Store {
  constructor() {
    this.who = null;
    this.parts = new Map(Object.keys(KEYS).map((name) => [name, new Map()]));
    this.listeners = new Set();
    this.news = new Set();
    this.timer = null;
    this.heard = 0;
  }

  // The event `hello` begins a stream, which tells everything anew.
  take(name, data) {
    if (name === "hello") {
      this.who = data;
      for (const part of this.parts.values()) part.clear();
      this.tell("hello");
      return;
    }
    const part = this.parts.get(name);
    if (part === undefined) return;
    const before = this.mayWrite;
    for (const one of data.changed) part.set(KEYS[name](one), one);
    for (const key of data.removed) part.delete(key);
    this.heard = Date.now();
    this.tell(name);
    if (this.mayWrite !== before) this.tell("hello");
  }

  tell(name) {
    this.news.add(name);
    this.timer ??= setTimeout(() => {
      const news = this.news;
      this.news = new Set();
      this.timer = null;
      for (const listener of this.listeners) listener(news);
    }, this.heard ? PAUSE_MS : 0);
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  all(name) {
    return [...this.parts.get(name).values()];
  }

  get(name, key = name) {
    return this.parts.get(name).get(key) ?? null;
  }

  get leads() {
    return this.get("status")?.role === "leader";
  }

  // Whether buttons that change something are enabled; views hear of it as of `hello`.
  get mayWrite() {
    return this.leads && this.who?.role === "operator";
  }
}
