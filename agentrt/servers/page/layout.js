// The two side areas: columns on a wide screen, drawers on a narrow one.

const WIDE = window.matchMedia("(min-width: 1180px)"); // room for the event panel
const MEDIUM = window.matchMedia("(min-width: 780px)"); // room for the thread list

class Side {
  constructor({ name, area, toggles, column }) {
    Object.assign(this, { name, area, toggles, column });
    this.open = this.column.matches;
    this.opener = null;
  }

  get drawer() {
    return !this.column.matches;
  }
}

export class Layout {
  constructor(root, { sidebar, panel, shade, sidebarToggle, panelToggle }) {
    this.root = root;
    this.shade = shade;
    this.sidebar = new Side({ name: "sidebar", area: sidebar, toggles: [sidebarToggle], column: MEDIUM });
    this.panel = new Side({ name: "panel", area: panel, toggles: [panelToggle], column: WIDE });
    this.sides = [this.sidebar, this.panel];
    for (const side of this.sides) {
      side.column.addEventListener("change", () => this.set(side, side.column.matches));
      for (const toggle of side.toggles) toggle.addEventListener("click", () => this.toggle(side));
    }
    shade.addEventListener("click", () => this.closeDrawers());
    this.apply();
  }

  toggle(side) {
    const opener = document.activeElement;
    this.set(side, !side.open);
    if (side.open && side.drawer) {
      for (const other of this.sides) if (other !== side && other.drawer) other.open = false;
      side.opener = opener;
      this.apply();
      side.area.querySelector("button:not([hidden])")?.focus();
    }
  }

  set(side, open) {
    side.open = open;
    this.apply();
    if (!open && side.opener) side.opener.focus();
    if (!open) side.opener = null;
  }

  /** Close what covers the chat; true if there was something to close. */
  closeDrawers() {
    const covering = this.sides.filter((side) => side.open && side.drawer);
    for (const side of covering) this.set(side, false);
    return covering.length > 0;
  }

  apply() {
    for (const side of this.sides) {
      this.root.classList.toggle(`${side.name}-open`, side.open);
      side.area.inert = !side.open;
      for (const toggle of side.toggles) toggle.setAttribute("aria-expanded", String(side.open));
    }
    this.shade.hidden = !this.sides.some((side) => side.open && side.drawer);
  }
}
