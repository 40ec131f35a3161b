// Keeps a scrolling area at its end while, and only while, the reader is there.

const NEAR = 24;

export class StickyScroll {
  /** `jump` is a button that is shown while the reader is away from the end. */
  constructor(area, jump) {
    this.area = area;
    this.jump = jump;
    this.stuck = true;
    this.lastTop = 0;
    area.addEventListener("scroll", () => this.scrolled(), { passive: true });
    jump?.addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => this.follow()).observe(area);
  }

  distance() {
    const { scrollHeight, clientHeight, scrollTop } = this.area;
    return scrollHeight - clientHeight - scrollTop;
  }

  scrolled() {
    const top = this.area.scrollTop;
    const distance = this.distance();
    if (distance < NEAR && top >= this.lastTop) this.stuck = true;
    else if (top < this.lastTop - 1 && distance > 4) this.stuck = false;
    this.lastTop = top;
    this.showJump();
  }

  /** After the content changed. */
  follow() {
    if (this.stuck) this.area.scrollTop = this.area.scrollHeight;
    this.showJump();
  }

  toEnd() {
    this.stuck = true;
    this.follow();
  }

  showJump() {
    if (this.jump) this.jump.hidden = this.stuck || this.distance() < NEAR;
  }
}
