// One WebSocket to the server: requests with replies, pushes, liveness, reconnection.
//
// A socket that is cut is opened again after 0.25 s, doubling to 5 s, with jitter; at
// once when the browser says that the network or the reader is back.

const FIRST_DELAY = 250;
const MAX_DELAY = 5000;
const OPEN_TIMEOUT = 8000;
const PING_EVERY = 20000;
const PING_TIMEOUT = 10000;

/** A request that failed; `code` is the server's, or "offline" when no reply came. */
export class RequestError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "RequestError";
    this.code = code;
  }
}

export class Connection {
  /** handlers: onState(state), onOpen(), onPush(frame), onConfig(config). */
  constructor(handlers) {
    this.handlers = handlers;
    this.state = "connecting"; // online | connecting | offline
    this.config = null;
    this.socket = null;
    this.nextId = 1;
    this.waiting = new Map(); // request id -> {resolve, reject}
    this.failures = 0;
    this.attempt = 0; // tells a superseded attempt that it is
    this.retryTimer = 0;
    this.pingTimer = 0;
  }

  start() {
    window.addEventListener("online", () => this.retryNow());
    window.addEventListener("offline", () => this.ping(2000));
    window.addEventListener("pageshow", (event) => event.persisted && this.retryNow());
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.retryNow();
    });
    this.connect();
  }

  /** Send a request; resolves with its reply, rejects with a RequestError. */
  request(op, fields = {}) {
    return new Promise((resolve, reject) => {
      if (this.socket?.readyState !== WebSocket.OPEN) {
        reject(new RequestError("offline", "There is no connection to the server."));
        return;
      }
      const id = this.nextId++;
      this.waiting.set(id, { resolve, reject });
      this.socket.send(JSON.stringify({ id, op, ...fields }));
    });
  }

  /** Drop the socket, if any, and open another one. */
  reconnect() {
    this.drop("The connection is being opened anew.");
    this.scheduleRetry();
  }

  /** The network or the reader is back: try now, or see whether the socket still lives. */
  retryNow() {
    if (this.state === "online") this.ping();
    else if (this.state === "offline") {
      this.failures = 0;
      this.connect();
    }
  }

  setState(state) {
    if (this.state === state) return;
    this.state = state;
    this.handlers.onState(state);
  }

  async connect() {
    clearTimeout(this.retryTimer);
    const attempt = ++this.attempt;
    this.setState("connecting");
    try {
      if (!this.config || this.failures > 0) await this.loadConfig();
    } catch {
      if (!this.config) { // without it there is no address to go to
        if (attempt === this.attempt) this.scheduleRetry();
        return;
      }
    }
    if (attempt === this.attempt) this.open();
  }

  async loadConfig() {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), OPEN_TIMEOUT);
    try {
      const response = await fetch("config.json", { cache: "no-store", signal: abort.signal });
      if (!response.ok) throw new Error(`config.json: ${response.status}`);
      this.config = await response.json();
    } finally {
      clearTimeout(timer);
    }
    this.handlers.onConfig(this.config);
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    let socket;
    try {
      socket = new WebSocket(`${scheme}://${location.hostname}:${this.config.websocketPort}/`);
    } catch {
      this.scheduleRetry();
      return;
    }
    this.socket = socket;
    const timer = setTimeout(() => this.lost(socket), OPEN_TIMEOUT);
    socket.onopen = () => {
      clearTimeout(timer);
      if (socket !== this.socket) return;
      this.pingTimer = setInterval(() => this.ping(), PING_EVERY);
      this.setState("online");
      this.handlers.onOpen();
    };
    socket.onmessage = ({ data }) => {
      if (socket === this.socket) this.receive(data);
    };
    socket.onclose = () => {
      clearTimeout(timer);
      this.lost(socket);
    };
  }

  receive(data) {
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      this.reconnect();
      return;
    }
    if (frame === null || typeof frame !== "object") return;
    const waiting = "ok" in frame ? this.waiting.get(frame.id) : undefined;
    if (waiting) {
      this.waiting.delete(frame.id);
      if (frame.ok) waiting.resolve(frame);
      else waiting.reject(new RequestError(frame.error?.code ?? "internal", frame.error?.message ?? "The request failed."));
    } else if (frame.threadId) {
      this.handlers.onPush(frame);
    }
  }

  /** All is well: the next failure starts from the shortest delay again. */
  settled() {
    this.failures = 0;
  }

  async ping(timeout = PING_TIMEOUT) {
    const { socket } = this;
    if (socket?.readyState !== WebSocket.OPEN) return;
    const timer = setTimeout(() => this.lost(socket), timeout);
    try {
      await this.request("ping");
    } catch {
      // an error is an answer too; a lost socket is seen to elsewhere
    } finally {
      clearTimeout(timer);
    }
  }

  lost(socket) {
    if (socket !== this.socket) return;
    this.drop("The connection to the server was lost.");
    this.scheduleRetry();
  }

  drop(reason) {
    clearInterval(this.pingTimer);
    const { socket } = this;
    this.socket = null;
    if (socket) {
      socket.onopen = socket.onmessage = socket.onclose = null; // closing may take long
      socket.close();
    }
    const waiting = [...this.waiting.values()];
    this.waiting.clear();
    for (const { reject } of waiting) reject(new RequestError("offline", reason));
  }

  scheduleRetry() {
    clearTimeout(this.retryTimer);
    this.attempt += 1;
    this.setState("offline");
    const delay = Math.min(MAX_DELAY, FIRST_DELAY * 2 ** this.failures);
    this.failures += 1;
    this.retryTimer = setTimeout(() => this.connect(), delay * (0.75 + Math.random() / 2));
  }
}
