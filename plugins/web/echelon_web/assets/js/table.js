// Tables whose rows stay the same elements while their texts change, so that focus and selection stay, too.

import { freshId, h, setText, show } from "./dom.js";
import { compare } from "./format.js";

const PAGE = 100;

// `columns`: {title, text(item), value(item), num, head, tone(item), gauge(item), node(key), refresh(node, item)}.
// `wide` and `reason` texts may take several lines. `text` is what stands in the cell, `value` what it is sorted by; a cell with `node` holds an element of its own.
export function table({ caption, columns, key, empty, onRow = (_row, _item) => {}, sortable = false, hideCaption = false }) {
  const rows = new Map();
  let items = [];
  let page = 0;
  let sorting = null;
  let direction = 1;

  const heads = columns.map((column) =>
    h("th", { scope: "col", class: column.num ? "num" : undefined }, head(column)),
  );
  const body = h("tbody");
  const captionId = freshId("caption");
  const grid = h("table", {},
    h("caption", { id: captionId, class: hideCaption ? "unseen" : undefined }, caption),
    h("thead", {}, h("tr", {}, heads)), body);
  const nothing = h("p", { class: "note", hidden: true }, empty);
  const pager = h("div", { class: "pager" });
  // Wide tables scroll, also by keyboard.
  const box = h("div", { class: "table-box", tabindex: "0", role: "region", "aria-labelledby": captionId }, grid);
  const element = h("div", {}, box, nothing, pager);

  function head(column) {
    if (!column.title) return h("span", { class: "unseen" }, "Actions");
    if (!sortable || column.node) return column.title;
    return h("button", { type: "button", class: "sort", onclick: () => sortBy(column) }, column.title);
  }

  function sortBy(column) {
    direction = sorting === column ? -direction : column.num ? -1 : 1;
    sorting = column;
    columns.forEach((one, at) => {
      if (one === column) heads[at].setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else heads[at].removeAttribute("aria-sort");
    });
    page = 0;
    draw();
  }

  function ordered() {
    if (sorting === null) return items;
    const of = sorting.value ?? sorting.text;
    return [...items].sort((a, b) => {
      const [x, y] = [of(a), of(b)];
      if (x === null || y === null) return Number(x === null) - Number(y === null);
      return direction * (typeof x === "number" ? x - y : compare(x, y));
    });
  }

  function rowOf(name) {
    const cells = columns.map((column) => {
      const cell = h(column.head ? "th" : "td", {
        scope: column.head ? "row" : undefined,
        class: [column.num && "num", column.gauge && "gauge", column.wide && "wide", column.reason && "reason", column.node && !column.title && "act"].filter(Boolean).join(" ") || undefined,
      });
      if (column.node) cell.append(column.node(name));
      return cell;
    });
    return { element: h("tr", {}, cells), cells };
  }

  function fill(row, item) {
    columns.forEach((column, at) => {
      const cell = row.cells[at];
      if (column.node) {
        column.refresh?.(cell.firstChild, item);
        return;
      }
      setText(cell, column.text(item));
      if (column.tone) cell.dataset.tone = column.tone(item) ?? "";
      if (column.gauge) {
        const { part, colour } = column.gauge(item);
        const width = `${Math.min(100, Math.round(part * 100))}%`;
        if (cell.style.getPropertyValue("--part") !== width) cell.style.setProperty("--part", width);
        if (cell.style.getPropertyValue("--fill") !== colour) cell.style.setProperty("--fill", colour);
      }
    });
    onRow(row.element, item);
  }

  function draw() {
    const pages = Math.max(1, Math.ceil(items.length / PAGE));
    page = Math.min(page, pages - 1);
    const shown = ordered().slice(page * PAGE, (page + 1) * PAGE);
    const keys = new Set(shown.map(key));
    for (const [name, row] of rows) {
      if (!keys.has(name)) {
        row.element.remove();
        rows.delete(name);
      }
    }
    shown.forEach((item, at) => {
      const name = key(item);
      let row = rows.get(name);
      if (row === undefined) rows.set(name, (row = rowOf(name)));
      fill(row, item);
      if (body.children[at] !== row.element) body.insertBefore(row.element, body.children[at] ?? null);
    });
    show(box, items.length > 0);
    show(nothing, items.length === 0);
    drawPager(pages);
  }

  function drawPager(pages) {
    if (pages === 1) {
      pager.replaceChildren();
      return;
    }
    if (!pager.firstChild) {
      const turn = (by) => () => {
        page += by;
        draw();
      };
      pager.append(h("button", { type: "button", class: "small", onclick: turn(-1) }, "Previous"),
        h("span", {}), h("button", { type: "button", class: "small", onclick: turn(1) }, "Next"));
    }
    const [previous, text, next] = pager.children;
    setText(text, `${page * PAGE + 1} to ${Math.min(items.length, (page + 1) * PAGE)} of ${items.length.toLocaleString("en")}`);
    previous.disabled = page === 0;
    next.disabled = page === pages - 1;
  }

  draw();
  return {
    element,
    update(found) {
      items = found;
      draw();
    },
  };
}
