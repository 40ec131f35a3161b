// Identifiers: random ones for threads, messages and runs, and short forms to show.

/** A random UUID; crypto.randomUUID exists only in secure contexts. */
export function newId() {
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** The first eight characters that tell an id apart, past any "run_"-like prefix. */
export function shortId(id) {
  if (!id) return "–";
  const text = String(id);
  const cut = /^[a-z]{1,8}[_:-]/.exec(text);
  return (cut && text.length > 12 ? text.slice(cut[0].length) : text).slice(0, 8);
}
