// Puts the page together: the selected thread, its conversation, and what shows them.

import { Checks } from "./checks.js";
import { Commands } from "./commands.js";
import { Composer } from "./composer.js";
import { Connection } from "./connection.js";
import { Conversation } from "./conversation.js";
import { el, icon } from "./dom.js";
import { newId } from "./ids.js";
import { Layout } from "./layout.js";
import { Notices } from "./notices.js";
import { EventPanel } from "./panel.js";
import { StickyScroll } from "./scroll.js";
import { Sidebar } from "./sidebar.js";
import { Subscription } from "./subscription.js";
import { addressOf, threadInAddress, ThreadStore } from "./threads.js";
import { Transcript } from "./transcript.js";

const SUGGESTIONS = [
  "What is the weather in Paris?",
  "What is 12 * (3 + 4)?",
  "What time is it in Tokyo?",
  "Add milk to my todo list",
  "Show me some Markdown",
  "Think about it: why is the sky blue?",
  "Tell me a long story",
  "Weather in Paris, Rome and Oslo",
  "Delete the production database",
  "Use the slow tool",
  "Fail please",
];
const MAX_FRAMES = 5000; // kept for tests to look at
const QUIET = 2500; // ms without a connection before the page speaks of it

const $ = (id) => document.getElementById(id);

const conversation = new Conversation();
const checks = new Checks();
const threads = new ThreadStore();
const notices = new Notices($("notices"));
const outboxes = new Map(); // thread id -> messages not sent when the reader left it
let frames = [];
let quietTimer = 0;
let scheduled = false;

const connection = new Connection({
  onConfig: showConfig,
  onState: showState,
  onOpen: () => subscription.subscribe(),
  onPush: (frame) => subscription.push(frame),
});

const subscription = new Subscription(connection, {
  onRaw(frame) {
    if (frame.resync) checks.resync(frame.resync);
    else checks.frame(frame);
    panel.add(frame);
    frames.push(frame);
    if (frames.length > MAX_FRAMES) frames = frames.slice(-MAX_FRAMES / 2);
    schedule();
  },
  onResync(snapshot) {
    conversation.resync(snapshot);
    noteThread(false);
  },
  onFrame(frame) {
    conversation.apply(frame);
    if (frame.type === "run/started") noteThread(true);
  },
  onRewind: (seq) => checks.rewind(seq),
  onReady() {
    commands.flush();
    schedule();
  },
  onError: (error) => notices.show(`Cannot follow this thread: ${error.message} (${error.code})`, { key: "subscribe" }),
});

const commands = new Commands(conversation, connection, subscription, {
  changed: schedule,
  notice: (text) => notices.show(text),
  restore: (text) => composer.restore(text),
  answered: focusComposer,
});

const transcript = new Transcript($("transcript"), $("empty"), commands);
const panel = new EventPanel($("panel"));
const scroll = new StickyScroll($("scroll"), $("jump"));
const sidebar = new Sidebar($("thread-list"), { select: openThread, remove: removeThread });
const layout = new Layout($("layout"), {
  sidebar: $("sidebar"), panel: $("panel"), shade: $("shade"),
  sidebarToggle: $("sidebar-open"), panelToggle: $("panel-toggle"),
});
const composer = new Composer(
  { form: $("composer"), text: $("composer-text"), send: $("send"), stop: $("stop"), hint: $("hint") },
  { send, stop: () => commands.stop() },
);

// --- threads ------------------------------------------------------------------------------

function openThread(id) {
  layout.closeDrawers();
  if (threadInAddress() !== id) history.pushState(null, "", addressOf(id));
  showThread(id);
  focusComposer();
}

function showThread(id) {
  if (id === subscription.threadId) return;
  const left = conversation.pendingUsers();
  if (left.length) outboxes.set(subscription.threadId, left);
  conversation.clear();
  checks.reset();
  panel.clear();
  frames = [];
  for (const item of outboxes.get(id) ?? []) {
    if (item.pending === "sending") item.pending = "unknown";
    conversation.add(item);
  }
  outboxes.delete(id);
  subscription.select(id);
  scroll.toEnd();
  drawThreads();
  schedule();
}

function newThread() {
  if (conversation.items.length === 0 && subscription.ready) {
    layout.closeDrawers();
    focusComposer();
  } else openThread(newId());
}

function removeThread(id) {
  threads.remove(id);
  if (id === subscription.threadId) openThread(threads.list[0]?.id ?? newId());
}

/** Keep the thread in the list once somebody has said something in it. */
function noteThread(moveUp) {
  const words = conversation.firstUserText();
  if (words) threads.touch(subscription.threadId, words, moveUp);
}

function drawThreads() {
  sidebar.render(threads.list, subscription.threadId);
  const title = threads.list.find(({ id }) => id === subscription.threadId)?.title ?? "New thread";
  $("title").textContent = title;
  document.title = title === "New thread" ? "agentrt" : `${title} · agentrt`;
}

/** On a touch screen focus would bring up the keyboard, which nobody asked for. */
function focusComposer() {
  if (window.matchMedia("(hover: hover)").matches) composer.focus();
}

function send(text) {
  if (!commands.send(text)) return false;
  noteThread(true);
  scroll.toEnd();
  return true;
}

// --- drawing ------------------------------------------------------------------------------

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    render();
  });
}

function render() {
  transcript.render(conversation, subscription.ready || connection.state !== "online");
  composer.render({
    busy: conversation.busy,
    stopping: conversation.stopping,
    paused: conversation.paused,
    pending: conversation.pendingUsers().length > 0,
    unsent: conversation.pendingUsers().some((item) => item.pending === "unsent"),
  });
  panel.render(checks);
  scroll.follow();
}

function showConfig({ agent, model, version }) {
  $("empty-model").textContent = [agent, model].filter(Boolean).join(" · ");
  $("about").textContent = `agentrt ${version ?? ""}`.trim();
}

function showState(state) {
  const mark = $("connection");
  mark.dataset.state = state;
  mark.querySelector("span").textContent = state;
  if (state === "online") {
    clearTimeout(quietTimer);
    quietTimer = 0;
    notices.dismiss("connection");
    notices.dismiss("subscribe");
    return;
  }
  subscription.suspend();
  quietTimer ||= setTimeout(() => {
    notices.show("No connection to the server. Trying again…", { key: "connection", kind: "warning" });
  }, QUIET);
  schedule();
}

// --- the page itself ----------------------------------------------------------------------

function decorate() {
  for (const [id, name] of [
    ["sidebar-open", "menu"], ["sidebar-close", "close"], ["panel-toggle", "pulse"], ["panel-close", "close"], ["jump", "down"],
  ]) $(id).append(icon(name));
  for (const button of document.querySelectorAll(".top .icon-button, .side-head .icon-button")) {
    if (button.id !== "theme") button.title = button.getAttribute("aria-label");
  }
  $("theme").append(icon("sun"), icon("moon"));
  $("new-thread").prepend(icon("plus"));
  for (const text of SUGGESTIONS) {
    const button = el("button", {
      type: "button", class: "suggestion", "data-testid": "suggestion", text,
      on: { click: () => { send(text); focusComposer(); } },
    });
    $("suggestions").append(el("li", {}, button));
  }
}

function listen() {
  $("new-thread").addEventListener("click", newThread);
  $("sidebar-close").addEventListener("click", () => layout.closeDrawers());
  $("panel-close").addEventListener("click", () => layout.set(layout.panel, false));
  $("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address names the thread
    composer.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
    if (!layout.closeDrawers()) commands.stop();
  });
  const follow = () => {
    const id = threadInAddress();
    if (id) showThread(id);
  };
  window.addEventListener("hashchange", follow);
  window.addEventListener("popstate", follow);
  threads.onChange = drawThreads;
}

decorate();
listen();
const first = threadInAddress() ?? newId();
if (threadInAddress() !== first) history.replaceState(null, "", addressOf(first));
showThread(first);
connection.start();
focusComposer();

window.agentrtDebug = {
  text: () => conversation.lastAssistantText(),
  get seq() { return subscription.last; },
  get frames() { return frames; },
};
