// Block Markdown (paragraphs, lists, tables, code, ...) to DOM nodes.
//
// MarkdownView redraws only the top-level blocks whose source changed, so a long
// answer that streams in costs one pass over its lines and one block of DOM per
// frame. Nothing here parses HTML: tags in the source come out as text.

import { copyButton, el } from "./dom.js";
import { renderInline } from "./markdown-inline.js";

const MAX_DEPTH = 10;
const MAX_COLUMNS = 64;
const FENCE = /^ *(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?: +(.*))?$/s;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( *)([-*+]|(\d{1,9})[.)])(?: +(.*))?$/s;
const LONE_MARK = /^ *(?:[-*+#>|`~=]{1,6}|\d{1,9}[.)])[ ]*$/;

/** Shows a growing Markdown text inside `root`. */
export class MarkdownView {
  constructor(root) {
    this.root = root;
    this.shown = []; // {key, node, block} for each top-level block
  }

  /** Show `text`; with `open` it is still being written and its end is unfinished. */
  update(text, open = false) {
    const lines = toLines(text);
    if (open && LONE_MARK.test(lines.at(-1)) && !insideFence(lines)) lines.pop();
    const blocks = parseBlocks(lines, 0, open);
    blocks.forEach((block, index) => {
      const tail = open && index === blocks.length - 1;
      const key = `${tail ? "…" : ""}${block.type}\n${lines.slice(block.from, block.to).join("\n")}`;
      this.place(index, key, block, tail);
    });
    for (const extra of this.shown.splice(blocks.length)) extra.node.remove();
  }

  place(index, key, block, tail) {
    const old = this.shown[index];
    if (old?.key === key) return;
    if (old && old.block.type === "code" && block.type === "code" && old.block.language === block.language) {
      setText(old.node.querySelector("code"), block.text); // keeps scroll and selection
      this.shown[index] = { key, node: old.node, block };
      return;
    }
    const node = renderBlock(block, tail);
    if (old) old.node.replaceWith(node);
    else this.root.append(node);
    this.shown[index] = { key, node, block };
  }
}

function setText(node, text) {
  const inner = node.firstChild;
  if (inner && text.startsWith(inner.data)) inner.appendData(text.slice(inner.data.length));
  else node.textContent = text;
}

function toLines(text) {
  return text.replaceAll("\r\n", "\n").split("\n").map((line) => {
    let at = 0;
    while (at < line.length && (line[at] === " " || line[at] === "\t")) at += 1;
    const indent = line.slice(0, at);
    return indent.includes("\t") ? indent.replaceAll("\t", "    ") + line.slice(at) : line;
  });
}

function insideFence(lines) {
  let open = null;
  for (const line of lines.slice(0, -1)) {
    if (open) open = closesFence(line, open) ? null : open;
    else open = FENCE.exec(line)?.[1] ?? null;
  }
  return open !== null;
}

function closesFence(line, fence) {
  const text = line.trim();
  if (text.length < fence.length) return false;
  for (const char of text) if (char !== fence[0]) return false;
  return true;
}

// --- parsing: lines -> blocks {type, from, to, ...} ---------------------------------

function parseBlocks(lines, depth, open) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const block = parseBlock(lines, at, depth, open);
    block.from = at;
    blocks.push(block);
    at = block.to;
  }
  return blocks;
}

function parseBlock(lines, at, depth, open) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return parseFence(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return { type: "heading", level: heading[1].length, text: headingText(heading[2] ?? ""), to: at + 1 };
  if (isRule(line)) return { type: "rule", to: at + 1 };
  if (depth < MAX_DEPTH && QUOTE.test(line)) return parseQuote(lines, at, depth, open);
  const item = depth < MAX_DEPTH ? ITEM.exec(line) : null;
  if (item) return parseList(lines, at, item, depth, open);
  return parseTable(lines, at, open) ?? parseParagraph(lines, at, depth);
}

function isBlank(line) {
  return line.trim() === "";
}

function indentOf(line) {
  let at = 0;
  while (line[at] === " ") at += 1;
  return at;
}

function isRule(line) {
  const text = line.replaceAll(" ", "");
  if (text.length < 3 || !"-*_".includes(text[0]) || indentOf(line) > 3) return false;
  for (const char of text) if (char !== text[0]) return false;
  return true;
}

function headingText(text) {
  let end = text.trimEnd().length;
  const whole = end;
  while (end > 0 && text[end - 1] === "#") end -= 1;
  return end === 0 || text[end - 1] === " " ? text.slice(0, end).trim() : text.slice(0, whole).trim();
}

function parseFence(lines, at, [, fence, info]) {
  const indent = indentOf(lines[at]);
  const body = [];
  let to = at + 1;
  let closed = false;
  for (; to < lines.length && !closed; to += 1) {
    if (closesFence(lines[to], fence)) closed = true;
    else body.push(lines[to].slice(Math.min(indent, indentOf(lines[to]))));
  }
  const language = info.trim().split(/[\s{]/, 1)[0].slice(0, 32);
  return { type: "code", language, text: body.join("\n"), to };
}

function parseQuote(lines, at, depth, open) {
  const inner = [];
  let to = at;
  while (to < lines.length && !isBlank(lines[to])) {
    const line = lines[to];
    if (QUOTE.test(line)) inner.push(line.slice(line.indexOf(">") + 1).replace(/^ /, ""));
    else if (isBlank(inner.at(-1) ?? "") || interrupts(line, depth)) break;
    else inner.push(line);
    to += 1;
  }
  return { type: "quote", blocks: parseBlocks(inner, depth + 1, open), to };
}

function parseList(lines, at, first, depth, open) {
  const base = first[1].length;
  const ordered = first[3] !== undefined;
  const list = { type: "list", ordered, start: ordered ? Number(first[3]) : 1, items: [], loose: false };
  let item = null;
  let to = at;
  let gap = false;
  while (to < lines.length) {
    const line = lines[to];
    if (isBlank(line)) {
      gap = true;
      to += 1;
      continue;
    }
    const inside = indentOf(line) >= base + 2;
    const marker = inside || isRule(line) ? null : ITEM.exec(line);
    if (marker && (marker[3] !== undefined) === ordered) {
      if (gap && item) list.loose = true;
      item = { lines: [marker[4] ?? ""], offset: marker[1].length + marker[2].length + 1 };
      list.items.push(item);
    } else if (inside) {
      if (gap) item.lines.push("");
      item.lines.push(line.slice(Math.min(indentOf(line), item.offset)));
    } else if (gap || marker || interrupts(line, depth)) break;
    else item.lines.push(line);
    gap = false;
    to += 1;
  }
  while (isBlank(lines[to - 1])) to -= 1;
  for (const entry of list.items) {
    const task = /^\[([ xX])\] /.exec(entry.lines[0]);
    entry.task = task ? task[1] !== " " : null;
    if (task) entry.lines[0] = entry.lines[0].slice(4);
    entry.blocks = parseBlocks(entry.lines, depth + 1, open);
  }
  list.to = to;
  return list;
}

function parseTable(lines, at, open) {
  const line = lines[at];
  if (!line.includes("|")) return null;
  const next = lines[at + 1];
  const head = cells(line);
  const aligns = next === undefined ? null : alignments(next);
  if (!aligns || aligns.length !== head.length) {
    const growing = open && line.trimStart().startsWith("|") && at + 2 >= lines.length;
    if (!growing || (next !== undefined && !/^[\s|:-]*$/.test(next))) return null;
    return { type: "table", head, aligns: [], rows: [], to: lines.length };
  }
  const rows = [];
  let to = at + 2;
  while (to < lines.length && lines[to].includes("|") && !isBlank(lines[to])) {
    rows.push(cells(lines[to]).slice(0, head.length));
    to += 1;
  }
  return { type: "table", head, aligns, rows, to };
}

/** Split a table row at its bars, which "\|" and code spans may contain. */
function cells(line) {
  const text = line.trim();
  const row = [];
  let cell = "";
  let code = false;
  for (let at = text[0] === "|" ? 1 : 0; at < text.length; at += 1) {
    const char = text[at];
    if (char === "\\" && text[at + 1] === "|") {
      cell += "|";
      at += 1;
    } else if (char === "|" && !code) {
      row.push(cell.trim());
      cell = "";
    } else {
      if (char === "`") code = !code && text.includes("`", at + 1);
      cell += char;
    }
  }
  if (cell.trim() || row.length === 0) row.push(cell.trim());
  return row.slice(0, MAX_COLUMNS);
}

function alignments(line) {
  if (!line.includes("-") || !/^[\s|:-]+$/.test(line)) return null;
  const marks = cells(line);
  if (!marks.every((mark) => /^:?-+:?$/.test(mark))) return null;
  return marks.map((mark) => {
    if (mark.endsWith(":")) return mark.startsWith(":") ? "center" : "right";
    return mark.startsWith(":") ? "left" : "";
  });
}

function parseParagraph(lines, at, depth) {
  let to = at + 1;
  while (to < lines.length && !isBlank(lines[to]) && !interrupts(lines[to], depth) && !startsTable(lines, to)) to += 1;
  const text = lines.slice(at, to).map((line) => line.trimStart()).join("\n");
  return { type: "paragraph", text: text.trimEnd(), to };
}

/** Whether this line ends a paragraph that stands before it without a blank line. */
function interrupts(line, depth) {
  if (FENCE.test(line) || HEADING.test(line) || isRule(line)) return true;
  if (depth >= MAX_DEPTH) return false;
  if (QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  return item !== null && Boolean(item[4]) && (item[3] === undefined || item[3] === "1");
}

function startsTable(lines, at) {
  if (!lines[at].includes("|") || at + 1 >= lines.length) return false;
  const aligns = alignments(lines[at + 1]);
  return aligns !== null && aligns.length === cells(lines[at]).length;
}

// --- rendering: blocks -> nodes -------------------------------------------------------

function renderBlocks(parent, blocks, tail) {
  blocks.forEach((block, index) => parent.append(renderBlock(block, tail && index === blocks.length - 1)));
}

function renderBlock(block, tail) {
  switch (block.type) {
    case "code": return renderCode(block);
    case "heading": return inline(`h${block.level}`, block.text, tail);
    case "rule": return el("hr");
    case "quote": {
      const quote = el("blockquote");
      renderBlocks(quote, block.blocks, tail);
      return quote;
    }
    case "list": return renderList(block, tail);
    case "table": return renderTable(block, tail);
    default: return inline("p", block.text, tail);
  }
}

function inline(tag, text, tail) {
  const node = el(tag);
  renderInline(node, text, tail);
  return node;
}

function renderCode({ language, text }) {
  const code = el("code", { text });
  const bar = el("div", { class: "code-bar" }, el("span", { class: "code-language", "data-caption": language || "text" }),
    copyButton("Copy code", () => code.textContent));
  return el("div", { class: "code-block" }, bar, el("pre", { tabindex: "0", "aria-label": "Code" }, code));
}

function renderList({ ordered, start, items, loose }, tail) {
  const list = el(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? start : null });
  items.forEach((item, index) => {
    const node = el("li", { class: item.task === null ? null : "task" });
    if (item.task !== null) {
      node.append(el("input", { type: "checkbox", disabled: true, checked: item.task, "aria-label": item.task ? "done" : "not done" }));
    }
    const last = tail && index === items.length - 1;
    const spaced = loose || item.blocks.filter(({ type }) => type === "paragraph").length > 1;
    item.blocks.forEach((block, place) => {
      const unfinished = last && place === item.blocks.length - 1;
      if (block.type === "paragraph" && !spaced) renderInline(node, block.text, unfinished);
      else node.append(renderBlock(block, unfinished));
    });
    list.append(node);
  });
  return list;
}

function renderTable({ head, aligns, rows }, tail) {
  const cell = (tag, text, column, unfinished) => {
    const node = inline(tag, text, unfinished);
    if (aligns[column]) node.classList.add(`align-${aligns[column]}`);
    if (tag === "th") node.scope = "col";
    return node;
  };
  const body = el("tbody");
  rows.forEach((row, index) => {
    const last = tail && index === rows.length - 1;
    const line = el("tr", {}, ...row.map((text, column) => cell("td", text, column, last && column === row.length - 1)));
    if (row.length < head.length) line.append(el("td", { colspan: head.length - row.length }));
    body.append(line);
  });
  const top = el("thead", {}, el("tr", {}, ...head.map((text, column) => cell("th", text, column, false))));
  return el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Table" }, el("table", {}, top, body));
}
