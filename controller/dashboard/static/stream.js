// The stream of changes, kept open: what it shows stays when the server is gone, and is made whole when it is back.

const SILENCE = 16000; // the server says something every 5 s
const PAUSES = [500, 1000, 2000, 5000];

export class Stream {
  constructor(path, { changed, connection }) {
    Object.assign(this, { path, changed, connection, tries: 0, lostAt: null, state: null, closed: false });
    this.watchdog = setInterval(() => this.heardAt < Date.now() - SILENCE && this.lost(), 2000);
    this.hiding = () => (document.hidden ? this.pause() : this.source || this.open());
    document.addEventListener("visibilitychange", this.hiding);
    this.open();
  }

  open() {
    this.heardAt = Date.now();
    this.source = new EventSource(this.path);
    this.source.addEventListener("changes", (event) => this.take(JSON.parse(event.data)));
    this.source.addEventListener("ping", () => this.heard());
    this.source.onerror = () => this.lost();
  }

  heard() {
    this.heardAt = Date.now();
    this.tries = 0;
    this.lostAt = null;
    this.connection({ state: "live" });
  }

  take(changes) {
    this.heard();
    this.state = merged(this.state, changes);
    this.changed(this.state, changes);
  }

  lost(state = "lost") {
    this.end();
    if (this.closed || document.hidden) return;
    this.lostAt ??= Date.now() / 1000;
    this.connection({ state, since: this.lostAt });
    const pause = PAUSES[Math.min(this.tries++, PAUSES.length - 1)];
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.again(), pause);
  }

  async again() {
    let state = "lost";
    try {
      const answer = await fetch("static/style.css", { method: "HEAD" });
      if (this.closed || this.source) return;
      if (answer.ok) return this.open();
      state = "stranger";
    } catch {
      // nobody listens there
    }
    this.lost(state);
  }

  // Nothing is read for a page that nobody sees.
  pause() {
    this.end();
    clearTimeout(this.timer);
    this.connection({ state: "paused" });
  }

  end() {
    this.source?.close();
    this.source = null;
    this.heardAt = Infinity;
  }

  close() {
    this.closed = true;
    this.end();
    clearTimeout(this.timer);
    clearInterval(this.watchdog);
    document.removeEventListener("visibilitychange", this.hiding);
  }
}

export function merged(state, changes) {
  const { nodes, whole, ...parts } = changes;
  const next = whole || !state ? { nodes: new Map(), ...parts } : { ...state, ...parts };
  for (const [instance, row] of Object.entries(nodes?.set ?? {})) next.nodes.set(instance, row);
  for (const instance of nodes?.gone ?? []) next.nodes.delete(instance);
  return next;
}
