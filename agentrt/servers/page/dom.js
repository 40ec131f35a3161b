// Small helpers to build DOM nodes without ever parsing HTML text.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element. `props` may hold `class`, `text`, `on` (event handlers) and
 * any attribute; a value of null, undefined or false leaves the attribute out.
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "class") node.className = value;
    else if (name === "on") {
      for (const [type, handler] of Object.entries(value)) node.addEventListener(type, handler);
    } else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

const ICONS = {
  menu: ["M4 7h16", "M4 12h16", "M4 17h16"],
  plus: ["M12 5v14", "M5 12h14"],
  close: ["M6 6l12 12", "M18 6L6 18"],
  send: ["M12 19V5", "M6 11l6-6 6 6"],
  stop: ["M8 8h8v8H8z"],
  copy: ["M9 9h10v11H9z", "M15 9V4H5v11h4"],
  check: ["M5 12.5l4.5 4.5L19 7.5"],
  down: ["M12 5v14", "M6 13l6 6 6-6"],
  chevron: ["M9 6l6 6-6 6"],
  pulse: ["M3 12h4l3-8 4 16 3-8h4"],
  sun: ["M12 8a4 4 0 100 8 4 4 0 000-8z", "M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M19 5l-1.4 1.4M6.4 17.6L5 19"],
  moon: ["M20 14.5A8.5 8.5 0 119.5 4a6.8 6.8 0 0010.5 10.5z"],
  tool: ["M14.5 6.5a4 4 0 015-1.2l-2.6 2.6 1.2 2 2.2-.4a4 4 0 01-5.6 3.4L8 19.6a1.9 1.9 0 01-2.7-2.7l6.7-6.6a4 4 0 012.5-3.8z"],
  alert: ["M12 4l9 16H3z", "M12 10v4", "M12 17v.5"],
};

/** A decorative line icon; the button around it carries the label. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", `icon icon-${name}`);
  for (const d of ICONS[name] ?? []) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    svg.append(path);
  }
  return svg;
}

/**
 * A button that copies `read()` to the clipboard and says so for a moment. Its caption
 * is drawn by the style sheet, so that it is not part of the text it stands in.
 */
export function copyButton(label, read) {
  const button = el("button", { type: "button", class: "copy", "aria-label": label, "data-caption": "Copy" }, icon("copy"));
  let timer = 0;
  button.addEventListener("click", async () => {
    button.dataset.caption = (await copyText(read())) ? "Copied" : "Failed";
    button.setAttribute("aria-label", button.dataset.caption);
    clearTimeout(timer);
    timer = setTimeout(() => {
      button.dataset.caption = "Copy";
      button.setAttribute("aria-label", label);
    }, 1600);
  });
  return button;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // no clipboard API on plain http
  }
}

function copyBySelection(text) {
  const area = el("textarea", { class: "offscreen", "aria-hidden": "true", tabindex: "-1" });
  const before = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  let done = false;
  try {
    done = document.execCommand("copy");
  } catch {
    done = false;
  }
  area.remove();
  before?.focus?.();
  return done;
}
