// Live checks of two promises the server makes about a thread's frames:
//   P1  seq has no hole and no repeat;
//   P2  each run has exactly one terminal event, and it is that run's last event.

import { shortId } from "./ids.js";

const TERMINAL = new Set(["run/finished", "run/error", "run/cancelled", "run/paused"]);

export class Checks {
  constructor() {
    this.reset();
  }

  reset() {
    this.last = null; // seq of the frame before, null before the first snapshot
    this.open = null; // the run that has begun and not ended
    this.ended = new Map(); // run id -> its terminal type
    this.p1 = { ok: true, text: "", count: 0 };
    this.p2 = { ok: true, text: "", count: 0 };
  }

  /** A snapshot: counting starts anew after it, with its run (if any) under way. */
  resync({ seq, run }) {
    this.last = seq;
    this.open = run?.runId ?? null;
    this.ended.clear();
  }

  /** The page asked again for what follows `seq`, so that is what must come next. */
  rewind(seq) {
    this.last = seq;
  }

  frame({ seq, type, runId }) {
    this.checkSeq(seq);
    if (runId) this.checkRun(seq, type, runId);
  }

  checkSeq(seq) {
    this.p1.count += 1;
    if (this.last !== null && seq !== this.last + 1) {
      const what = seq > this.last ? `hole: ${seq} came after ${this.last}` : `repeat: ${seq} came after ${this.last}`;
      fail(this.p1, what);
    }
    this.last = this.last === null ? seq : Math.max(this.last, seq);
  }

  checkRun(seq, type, runId) {
    const ended = this.ended.get(runId);
    if (ended !== undefined) {
      fail(this.p2, `run ${shortId(runId)}: ${type} (seq ${seq}) came after its end, ${ended}`);
      return;
    }
    if (this.open !== null && this.open !== runId) {
      fail(this.p2, `run ${shortId(this.open)} had no end when run ${shortId(runId)} began (seq ${seq})`);
    }
    this.open = runId;
    if (!TERMINAL.has(type)) return;
    this.p2.count += 1;
    this.ended.set(runId, type);
    this.open = null;
  }
}

function fail(check, text) {
  if (check.ok) check.text = text; // the first violation is the one to look into
  check.ok = false;
}
