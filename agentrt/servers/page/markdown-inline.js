// Inline Markdown (emphasis, code, links, ...) to DOM nodes, in one linear pass.
//
// Emphasis is closed as soon as its closing run is met, so every token is moved
// at most once per level, and the stacks of open runs are bounded: hostile input
// (a megabyte of "*" or "[") costs no more than plain text.

import { el } from "./dom.js";

const MAX_OPEN = 32;
const MAX_URL = 2048;
const MAX_PARENS = 8;
const PLAIN = /[^\\`*_~[\]!<&\nh]+/y;
const AUTOLINK = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2048})>/iy;
const BARE_URL = /https?:\/\/[^\s<>"`[\]]+/iy;
const BREAK = /<br\s{0,4}\/?>/iy;
const ENTITY = /&(?:(amp|lt|gt|quot|apos|nbsp)|#(\d{1,7})|#x([\da-f]{1,6}));/iy;
const NAMED = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const PUNCTUATION = /[\p{P}\p{S}]/u;
const WORD = /[\p{L}\p{N}_]/u;

/** Append the nodes for `text` to `parent`; `tail` closes what is still unfinished. */
export function renderInline(parent, text, tail = false) {
  const source = tail ? withoutTrailingMarks(text) : text;
  appendTokens(parent, new Inline(source, tail).run());
}

/** The address if it may be linked to, else null: http, https and mailto only. */
export function safeUrl(address) {
  const text = address.trim();
  if (!/^(?:https?:\/\/|mailto:)/i.test(text)) return null;
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(href, title) {
  return el("a", { href, title: title || null, target: "_blank", rel: "noopener noreferrer" });
}

function withoutTrailingMarks(text) {
  let end = text.length;
  while (end > 0 && text.length - end < 3 && "*_~`".includes(text[end - 1])) end -= 1;
  return text.slice(0, end);
}

function appendTokens(parent, tokens) {
  let text = "";
  for (const token of tokens) {
    if (typeof token === "string") text += token;
    else if (token instanceof Node) {
      if (text) parent.append(text);
      text = "";
      parent.append(token);
    } else text += token.mark.repeat(token.count);
  }
  if (text) parent.append(text);
}

class Inline {
  constructor(text, tail) {
    this.text = text;
    this.tail = tail;
    this.pos = 0;
    this.tokens = []; // strings, nodes, and {mark, count} runs that may yet become nodes
    this.openers = []; // emphasis runs that may be closed: {at, run}
    this.brackets = []; // "[" that may become links: {at}
    this.ticks = null; // code span delimiters by length
  }

  run() {
    const { text } = this;
    while (this.pos < text.length) {
      const plain = this.match(PLAIN);
      if (plain) {
        this.tokens.push(plain[0]);
        continue;
      }
      this.special(text[this.pos]);
    }
    if (this.tail) this.closeAll();
    return this.tokens;
  }

  match(pattern) {
    pattern.lastIndex = this.pos;
    const found = pattern.exec(this.text);
    if (found) this.pos = pattern.lastIndex;
    return found;
  }

  special(char) {
    switch (char) {
      case "\\": return this.escape();
      case "`": return this.code();
      case "*": case "_": case "~": return this.emphasis(char);
      case "[": return this.openBracket(1, "[");
      case "!": return this.text[this.pos + 1] === "[" ? this.openBracket(2, "![") : this.literal(1);
      case "]": return this.closeBracket();
      case "<": return this.angle();
      case "&": return this.entity();
      case "\n": return this.newline();
      default: return this.bareUrl();
    }
  }

  literal(length) {
    this.tokens.push(this.text.slice(this.pos, this.pos + length));
    this.pos += length;
  }

  escape() {
    const next = this.text[this.pos + 1];
    if (next === "\n") {
      this.tokens.push(el("br"));
      this.pos += 2;
    } else if (next !== undefined && next < "\u0080" && PUNCTUATION.test(next)) {
      this.tokens.push(next);
      this.pos += 2;
    } else this.literal(1);
  }

  newline() {
    const last = this.tokens.at(-1);
    this.tokens.push(typeof last === "string" && last.endsWith("  ") ? el("br") : "\n");
    this.pos += 1;
  }

  code() {
    const { text, pos } = this;
    let length = 1;
    while (text[pos + length] === "`") length += 1;
    const start = pos + length;
    let end = this.closingTicks(length, start);
    if (end < 0 && this.tail && start < text.length && length < 3) end = text.length;
    if (end < 0) return this.literal(length);
    let body = text.slice(start, end).replaceAll("\n", " ");
    if (body.length > 2 && body.startsWith(" ") && body.endsWith(" ") && body.trim()) body = body.slice(1, -1);
    this.tokens.push(el("code", { text: body }));
    this.pos = Math.min(text.length, end + length);
  }

  /** Where the next run of exactly `length` backticks begins at or after `from`, or -1. */
  closingTicks(length, from) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const found of this.text.matchAll(/`+/g)) {
        const size = found[0].length;
        if (!this.ticks.has(size)) this.ticks.set(size, { places: [], next: 0 });
        this.ticks.get(size).places.push(found.index);
      }
    }
    const list = this.ticks.get(length);
    if (!list) return -1;
    while (list.next < list.places.length && list.places[list.next] < from) list.next += 1;
    return list.next < list.places.length ? list.places[list.next] : -1;
  }

  emphasis(mark) {
    const { text, pos } = this;
    let count = 1;
    while (text[pos + count] === mark) count += 1;
    if (count > 4 || (mark === "~" && count !== 2)) return this.literal(count);
    const before = pos > 0 ? text[pos - 1] : " ";
    const after = pos + count < text.length ? text[pos + count] : " ";
    const left = flanks(after, before);
    const right = flanks(before, after);
    const under = mark === "_";
    const run = {
      mark,
      count,
      size: count,
      open: left && (!under || !right || PUNCTUATION.test(before)),
      close: right && (!under || !left || PUNCTUATION.test(after)),
    };
    this.pos += count;
    if (run.close) this.close(run);
    if (run.count === 0) return;
    this.tokens.push(run);
    if (run.open) {
      this.openers.push({ at: this.tokens.length - 1, run });
      if (this.openers.length > MAX_OPEN) this.openers.shift();
    }
  }

  close(closer) {
    while (closer.count > 0) {
      let index = this.openers.length - 1;
      while (index >= 0 && !pairs(this.openers[index].run, closer)) index -= 1;
      if (index < 0) return;
      const { at, run } = this.openers[index];
      const used = run.count >= 2 && closer.count >= 2 ? 2 : 1;
      const tag = used === 1 ? "em" : closer.mark === "~" ? "del" : "strong";
      const node = el(tag);
      appendTokens(node, this.take(at));
      run.count -= used;
      closer.count -= used;
      if (run.count === 0) {
        this.tokens.length = at;
        this.openers.length = index;
      } else this.openers.length = index + 1;
      this.tokens.push(node);
    }
  }

  /** Remove and return the tokens after `at`, with all that was open among them. */
  take(at) {
    while (this.brackets.length && this.brackets.at(-1).at > at) this.brackets.pop();
    while (this.openers.length && this.openers.at(-1).at > at) this.openers.pop();
    return this.tokens.splice(at + 1);
  }

  closeAll() {
    while (this.openers.length) {
      const { at, run } = this.openers.at(-1);
      if (at === this.tokens.length - 1) {
        this.tokens.pop();
        this.openers.pop();
        continue;
      }
      this.close({ mark: run.mark, count: run.count, size: run.size, open: false, close: true });
    }
  }

  openBracket(length, mark) {
    this.tokens.push({ mark, count: 1 });
    this.brackets.push({ at: this.tokens.length - 1 });
    if (this.brackets.length > MAX_OPEN) this.brackets.shift();
    this.pos += length;
  }

  closeBracket() {
    const bracket = this.brackets.pop();
    const target = bracket && this.text[this.pos + 1] === "(" ? destination(this.text, this.pos + 1) : null;
    if (!target) return this.literal(1);
    const unfinished = target.end === this.text.length && target.partial;
    if (unfinished && !this.tail) return this.literal(1);
    const href = unfinished ? null : safeUrl(target.href);
    if (!href && !unfinished) return this.literal(1);
    const node = href ? link(href, target.title) : el("span");
    const content = this.take(bracket.at);
    this.tokens.length = bracket.at;
    appendTokens(node, content);
    for (const inner of node.querySelectorAll("a")) inner.replaceWith(...inner.childNodes);
    if (!node.textContent) node.textContent = target.href;
    this.tokens.push(node);
    this.brackets.length = 0; // no link inside a link
    this.pos = target.end;
  }

  angle() {
    const auto = this.match(AUTOLINK);
    if (auto) {
      const href = safeUrl(auto[1]);
      const node = href ? link(href) : el("span");
      node.textContent = auto[1].replace(/^mailto:/i, "");
      this.tokens.push(node);
    } else if (this.match(BREAK)) this.tokens.push(el("br"));
    else this.literal(1);
  }

  entity() {
    const found = this.match(ENTITY);
    if (!found) return this.literal(1);
    if (found[1]) this.tokens.push(NAMED[found[1].toLowerCase()]);
    else {
      const point = found[2] ? parseInt(found[2], 10) : parseInt(found[3], 16);
      const usable = point > 0 && point <= 0x10ffff && !(point >= 0xd800 && point <= 0xdfff);
      this.tokens.push(usable ? String.fromCodePoint(point) : "\ufffd");
    }
  }

  bareUrl() {
    const start = this.pos;
    if (start > 0 && WORD.test(this.text[start - 1])) return this.literal(1);
    const found = this.match(BARE_URL);
    if (!found) return this.literal(1);
    const address = trimUrl(found[0].slice(0, MAX_URL));
    this.pos = start + address.length;
    const href = safeUrl(address);
    if (!href) this.tokens.push(address);
    else {
      const node = link(href);
      node.textContent = address;
      this.tokens.push(node);
    }
  }
}

function flanks(inside, outside) {
  if (/\s/.test(inside)) return false;
  return !PUNCTUATION.test(inside) || /\s/.test(outside) || PUNCTUATION.test(outside);
}

function pairs(opener, closer) {
  if (opener.mark !== closer.mark) return false;
  if (!(opener.close || closer.open)) return true;
  return (opener.size + closer.size) % 3 !== 0 || (opener.size % 3 === 0 && closer.size % 3 === 0);
}

/** Punctuation after an address, and a bracket it does not open, are not part of it. */
function trimUrl(address) {
  let end = address.length;
  let depth = 0;
  for (const char of address) depth += char === "(" ? 1 : char === ")" ? -1 : 0;
  while (end > 0) {
    const last = address[end - 1];
    if (last === ")" && depth < 0) depth += 1;
    else if (!".,;:!?'*_~".includes(last)) break;
    end -= 1;
  }
  return address.slice(0, end);
}

/** Read `(address "title")` at `pos`: null if it is none, `partial` if the text ends first. */
function destination(text, pos) {
  const limit = Math.min(text.length, pos + MAX_URL);
  let at = skipSpace(text, pos + 1, limit);
  let href = "";
  if (text[at] === "<") {
    const start = at + 1;
    while (at < limit && text[at] !== ">" && text[at] !== "\n") at += 1;
    href = text.slice(start, at);
    if (at < limit && text[at] !== ">") return null;
    at += 1;
  } else {
    const start = at;
    for (let depth = 0; at < limit && !/\s/.test(text[at]); at += 1) {
      if (text[at] === "(" && (depth += 1) > MAX_PARENS) return null;
      if (text[at] === ")" && (depth -= 1) < 0) break;
    }
    href = text.slice(start, at);
  }
  at = skipSpace(text, at, limit);
  let title = "";
  if (text[at] === '"' || text[at] === "'") {
    const quote = text[at];
    const start = at + 1;
    at = start;
    while (at < limit && text[at] !== quote) at += 1;
    title = text.slice(start, at);
    at = skipSpace(text, at + 1, limit);
  }
  if (at >= text.length) return { href, title, end: text.length, partial: true };
  return text[at] === ")" ? { href, title, end: at + 1, partial: false } : null;
}

function skipSpace(text, from, limit) {
  let at = from;
  while (at < limit && /\s/.test(text[at])) at += 1;
  return at;
}
