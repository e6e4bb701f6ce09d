// Begins: chooses what the page shows, draws its frame, and changes from view to view.

import { announce, h } from "./dom.js";
import { resultsPage } from "./results_page.js";
import { servicePage } from "./service_page.js";

const main = document.getElementById("main");
let current = null;
let page = null;

function show(name) {
  const view = page.views.find((one) => one.name === name) ?? page.views[0];
  current?.dispose();
  const links = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#views a"));
  for (const link of links) {
    if (link.dataset.view === view.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view.title} - Echelon`;
  current = view.make();
  main.replaceChildren(h("div", { class: "bar" }, h("h1", { tabindex: "-1" }, view.title), page.hint?.() ?? ""), current.element);
  current.update(new Set(current.parts));
  current.begin?.();
}

function fromAddress() {
  show(location.hash.slice(1));
}

async function begin() {
  page = await (document.documentElement.dataset.source === "results" ? resultsPage() : servicePage((news) => {
    if (current?.parts.some((part) => news.has(part))) current.update(news);
    if (news.has("hello")) page.onHello?.();
  }));
  document.getElementById("views").append(...page.views.map(({ name, title }) =>
    h("li", {}, h("a", { href: `#${name}`, "data-view": name }, title))));
  addEventListener("hashchange", () => {
    fromAddress();
    main.querySelector("h1").focus();
    announce(document.title);
  });
  fromAddress();
}

begin();
