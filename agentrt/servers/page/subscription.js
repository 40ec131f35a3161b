// Follows one thread over a connection: subscribes, and after every cut goes on exactly
// where it stopped. Passes frames on in order, each once; a hole makes it connect anew.

export class Subscription {
  /**
   * handlers: onRaw(frame) for every push of the thread, onResync(snapshot),
   * onFrame(frame) once per seq, onRewind(seq), onReady() when it has caught up,
   * onError(error).
   */
  constructor(connection, handlers) {
    this.connection = connection;
    this.handlers = handlers;
    this.threadId = null;
    this.last = null; // seq of the last frame applied, null before the first snapshot
    this.head = null; // the thread's last seq when the server accepted the subscription
    this.ready = false;
    this.holeAt = null;
    this.turn = 0; // tells the reply to a superseded subscribe that it is
  }

  select(threadId) {
    if (threadId === this.threadId) return;
    if (this.threadId !== null) this.connection.request("unsubscribe", { threadId: this.threadId }).catch(() => {});
    this.threadId = threadId;
    this.last = null;
    this.holeAt = null;
    this.subscribe();
  }

  /** The connection was lost: nothing can be asked for until it is back. */
  suspend() {
    this.turn += 1;
    this.head = null;
    this.ready = false;
  }

  async subscribe() {
    this.suspend();
    const { turn, threadId } = this;
    if (threadId === null || this.connection.state !== "online") return;
    const fields = { threadId, protocolVersion: "1.0" };
    if (this.last !== null) {
      fields.since = this.last;
      this.handlers.onRewind(this.last);
    }
    try {
      const reply = await this.connection.request("subscribe", fields);
      if (turn !== this.turn) return;
      this.head = reply.seq ?? 0;
      this.connection.settled();
      this.checkReady();
    } catch (error) {
      if (turn !== this.turn || error.code === "offline") return;
      this.handlers.onError(error);
      if (error.code !== "bad_request") this.connection.reconnect();
    }
  }

  push(frame) {
    if (frame.threadId !== this.threadId) return;
    if (frame.resync) {
      this.last = frame.resync.seq;
      this.holeAt = null;
      this.handlers.onRaw(frame);
      this.handlers.onResync(frame.resync);
    } else if (typeof frame.seq === "number" && this.last !== null) {
      this.handlers.onRaw(frame);
      if (frame.seq <= this.last) return;
      if (frame.seq > this.last + 1) {
        this.hole();
        return;
      }
      this.last = frame.seq;
      this.handlers.onFrame(frame);
    }
    this.checkReady();
  }

  /** A frame is missing: ask again from the last one, the second time for everything. */
  hole() {
    const at = this.last;
    if (this.holeAt === at) this.last = null;
    this.holeAt = at;
    this.connection.reconnect();
  }

  checkReady() {
    if (this.ready || this.head === null || this.last === null || this.last < this.head) return;
    this.ready = true;
    this.handlers.onReady();
  }
}
