// The observer's pages, live. The server sends fragments of HTML; this puts them in place without losing the focus, what is unfolded, or what is selected,
// draws curves and the graph, and opens confirmations in a dialog. Without this file each page is whole, and shows one moment.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);

  // --- the stream: htmx's extension listens to this one, which can pause, and rests while its tab is not looked at (browsers open six streams at once at most)

  class Stream extends EventTarget {
    constructor(url) {
      super();
      this.url = url;
      this.names = new Set();
      this.readyState = EventSource.OPEN; // htmx need not open another one
      this.isPaused = false;
      this.wait = 1000;
      document.addEventListener("visibilitychange", () => this.follow());
      addEventListener("pagehide", () => this.close());
      addEventListener("pageshow", (event) => event.persisted && this.follow());
      this.follow();
    }

    addEventListener(name, listener) {
      super.addEventListener(name, listener);
      if (!this.names.has(name)) {
        this.names.add(name);
        this.source?.addEventListener(name, this.pass);
      }
    }

    pass = (event) => this.dispatchEvent(new MessageEvent(event.type, { data: event.data }));

    follow() {
      clearTimeout(this.timer);
      if (this.isPaused || document.hidden) {
        this.close();
        say(this.isPaused ? "paused" : "resting", "idle");
      } else if (!this.source) {
        this.open();
      }
    }

    open() {
      const source = new EventSource(this.url);
      this.source = source;
      for (const name of this.names) source.addEventListener(name, this.pass);
      source.onopen = () => {
        this.wait = 1000;
        say("live", "good");
      };
      source.addEventListener("over", () => {
        this.close();
        say("signed out", "bad");
      });
      source.onerror = () => {
        say("no connection", "bad");
        if (source.readyState !== EventSource.CLOSED) return; // the browser tries again
        this.source = null;
        this.timer = setTimeout(() => this.follow(), this.wait);
        this.wait = Math.min(this.wait * 2, 30000);
      };
    }

    close() {
      this.source?.close();
      this.source = null;
    }
  }

  const say = (text, tone) => {
    const state = document.querySelector("[data-live]");
    if (!state || state.textContent === text) return;
    state.textContent = text;
    state.className = `state ${tone}`;
    document.documentElement.classList.toggle("is-stale", tone === "bad");
  };

  let stream = null;
  htmx.createEventSource = (url) => (stream = new Stream(url));

  // --- fragments: what is there is changed in place, by ids, so that the focus stays

  const morph = (parent, source) => {
    const present = new Map();
    for (const child of parent.children) if (child.id) present.set(child.id, child);
    const wanted = new Set();
    for (const child of source.children) if (child.id) wanted.add(child.id);
    const isPopulated = parent.children.length > 0;
    let at = parent.firstChild;
    for (const next of [...source.childNodes]) {
      const isElement = next.nodeType === Node.ELEMENT_NODE;
      let match = null;
      if (isElement && next.id) {
        match = present.get(next.id);
        if (match?.nodeName !== next.nodeName) match = null;
        while (match && at && at !== match && !(at.id && wanted.has(at.id))) at = removed(at);
      } else if (at && at.nodeName === next.nodeName && !at.id) {
        match = at;
      }
      if (!match) {
        const added = document.importNode(next, true);
        if (isPopulated && isElement && added.matches(".treegrid tr, .feed > li")) added.classList.add("new");
        parent.insertBefore(added, at);
      } else {
        if (match === at) at = at.nextSibling;
        else parent.insertBefore(match, at);
        update(match, next);
      }
    }
    while (at) at = removed(at);
  };

  const removed = (node) => {
    const after = node.nextSibling;
    node.remove();
    return after;
  };

  const update = (node, next) => {
    if (node.nodeType !== Node.ELEMENT_NODE) {
      if (node.nodeValue !== next.nodeValue) node.nodeValue = next.nodeValue;
      return;
    }
    const isKept = node.hasAttribute("data-keep");
    const isOwn = (name) => (isKept && !name.startsWith("data-")) || (name === "open" && node.nodeName === "DETAILS"); // the reader's own choice
    for (const { name, value } of [...next.attributes]) {
      if (!isOwn(name) && node.getAttribute(name) !== value) node.setAttribute(name, value);
    }
    for (const { name } of [...node.attributes]) {
      if (!isOwn(name) && !next.hasAttribute(name)) node.removeAttribute(name);
    }
    if (!isKept) morph(node, next);
  };

  htmx.defineExtension("observer", {
    handleSwap: (style, target, fragment) => {
      if (style !== "morph") return false;
      const focused = document.activeElement;
      morph(target, fragment);
      if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
      dress(target);
      return [];
    },
  });

  // --- curves

  const plots = new Map();
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const three = (value) => (value >= 100 ? Math.round(value) : Number(value.toPrecision(2)));
  const inUnit = (unit) => (value) => {
    if (value === null) return "";
    if (unit !== "s") return value >= 10000 ? `${three(value / 1000)} k` : String(three(value));
    return value === 0 ? "0" : value < 1 ? `${three(value * 1000)} ms` : `${three(value)} s`;
  };

  const timeOfDay = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(seconds % 60 ? { second: "2-digit" } : {}) });

  // A value without neighbours is no line: it is drawn as a point.
  const alone = (plot, series) => plot.data[series].filter((value) => value !== null).length === 1;

  const draw = (figure) => {
    const holder = figure.querySelector(".plot");
    const { unit, names, data } = JSON.parse(figure.dataset.curve);
    const known = plots.get(holder);
    if (known && known.names === names.join()) {
      known.plot.setData(data);
      return;
    }
    known?.plot.destroy();
    const format = inUnit(unit);
    const lines = [colour("--accent"), colour("--bad"), colour("--info")];
    const axis = { stroke: colour("--ink-3"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const plot = new uPlot(
      {
        width: Math.max(holder.clientWidth, 120),
        height: 136,
        padding: [8, 18, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
        scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.12 : 1] } },
        axes: [{ ...axis, size: 26, space: 70, values: (_, ticks) => ticks.map(timeOfDay) }, { ...axis, size: 54, space: 30, values: (_, ticks) => ticks.map(format) }],
        series: [
          {},
          ...names.map((label, place) => ({
            label,
            stroke: lines[place % lines.length],
            width: 1.75,
            fill: place === 0 ? `color-mix(in srgb, ${lines[0]} 12%, transparent)` : undefined,
            points: { show: alone, size: 5 },
          })),
        ],
      },
      data,
      holder,
    );
    plots.set(holder, { plot, names: names.join() });
    widths.observe(holder);
  };

  const widths = new ResizeObserver((changes) => {
    for (const { target, contentRect } of changes) {
      const known = plots.get(target);
      if (!target.isConnected) {
        known?.plot.destroy();
        plots.delete(target);
        widths.unobserve(target);
      } else if (known && contentRect.width > 0 && Math.abs(known.plot.width - contentRect.width) > 1) {
        known.plot.setSize({ width: contentRect.width, height: 136 });
      }
    }
  });

  // --- the graph of a process and its neighbours

  let graph = null;
  const drawGraph = (holder) => {
    const data = holder.dataset.graph;
    if (graph?.data === data && graph.holder === holder) return;
    graph?.drawing.destroy();
    if (!data || !JSON.parse(data).nodes.length) {
      graph = null;
      return;
    }
    const { nodes, edges } = JSON.parse(data);
    const sides = { parent: [], child: [], link: [], monitor: [] };
    for (const node of nodes) sides[node.side]?.push(node);
    const place = ({ side, id }) => {
      const among = sides[side];
      if (!among) return { x: 0, y: 0 };
      const offset = among.findIndex((each) => each.id === id) - (among.length - 1) / 2;
      if (side === "parent") return { x: offset * 170, y: -115 };
      if (side === "child") return { x: offset * 125, y: 115 + (Math.round(offset * 2) % 4 ? 0 : 34) };
      return { x: side === "link" ? -260 : 260, y: offset * 46 };
    };
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = "600 12px system-ui, sans-serif";
    const width = (label) => Math.min(150, pen.measureText(label).width) + 18;
    const kinds = { tree: colour("--accent"), link: colour("--warn"), monitor: colour("--info") };
    const drawing = cytoscape({
      container: holder,
      elements: [
        ...nodes.map((node) => ({ data: { ...node, width: width(node.label) }, classes: node.side, position: place(node) })),
        ...edges.map((edge, number) => ({ data: { id: `edge ${number}`, ...edge }, classes: edge.kind })),
      ],
      layout: { name: "preset", fit: true, padding: 28 },
      minZoom: 0.2,
      maxZoom: 1.4,
      userZoomingEnabled: false,
      boxSelectionEnabled: false,
      autoungrabify: true,
      style: [
        {
          selector: "node",
          style: {
            shape: "round-rectangle", width: "data(width)", height: 26, label: "data(label)", "text-valign": "center", "font-size": 12, "text-max-width": 150,
            "text-wrap": "ellipsis", "font-family": "system-ui, sans-serif", color: colour("--ink"), "background-color": colour("--surface"), "border-width": 1, "border-color": colour("--line-strong"),
          },
        },
        { selector: "node.self", style: { "background-color": colour("--accent"), color: colour("--surface"), "border-width": 0, "font-weight": 600 } },
        { selector: "node.gone", style: { "border-style": "dashed", color: colour("--ink-3") } },
        {
          selector: "edge",
          style: { width: 1.6, "curve-style": "bezier", "control-point-step-size": 26, "line-color": kinds.link, "target-arrow-color": kinds.link, "arrow-scale": 0.8 },
        },
        ...Object.entries(kinds).map(([kind, line]) => ({
          selector: `edge.${kind}`,
          style: {
            "line-color": line, "target-arrow-color": line,
            "target-arrow-shape": kind === "link" ? "none" : "triangle", "line-style": kind === "monitor" ? "dashed" : "solid",
          },
        })),
      ],
    });
    drawing.on("tap", "node", ({ target }) => {
      const address = new URL(holder.dataset.process, location.href);
      address.searchParams.set("pid", target.id());
      location.assign(address);
    });
    drawing.on("mouseover", "node", () => holder.classList.add("can-tap"));
    drawing.on("mouseout", "node", () => holder.classList.remove("can-tap"));
    graph = { drawing, data, holder };
  };

  // --- the tree: folding, and arrow keys as in any tree grid

  const folded = new Set(JSON.parse(sessionStorage.getItem("folded") ?? "[]"));
  const rows = (grid) => [...grid.querySelectorAll("tbody > tr")];

  const fold = (grid) => {
    let hidesBelow = Infinity;
    for (const row of rows(grid)) {
      const depth = Number(row.dataset.depth);
      if (depth <= hidesBelow) hidesBelow = Infinity;
      row.hidden = depth > hidesBelow;
      if (row.hasAttribute("aria-expanded")) {
        const isFolded = folded.has(row.id);
        row.setAttribute("aria-expanded", String(!isFolded));
        if (isFolded && hidesBelow === Infinity) hidesBelow = depth;
      }
    }
  };

  const setFolded = (row, isFolded) => {
    if (isFolded) folded.add(row.id);
    else folded.delete(row.id);
    sessionStorage.setItem("folded", JSON.stringify([...folded].slice(-1000)));
    fold(row.closest("table"));
  };

  const focusRow = (row) => {
    if (!row) return;
    for (const each of rows(row.closest("table"))) each.tabIndex = each === row ? 0 : -1;
    row.focus();
  };

  const onTreeKey = (event) => {
    const row = event.target.closest?.(".treegrid tbody > tr");
    if (!row || event.ctrlKey || event.altKey || event.metaKey) return;
    const shown = rows(row.closest("table")).filter((each) => !each.hidden);
    const at = shown.indexOf(row);
    const isOpen = row.getAttribute("aria-expanded");
    const above = shown.slice(0, at).findLast((each) => Number(each.dataset.depth) < Number(row.dataset.depth));
    const does = {
      ArrowDown: () => focusRow(shown[at + 1]),
      ArrowUp: () => focusRow(shown[at - 1]),
      Home: () => focusRow(shown[0]),
      End: () => focusRow(shown.at(-1)),
      ArrowLeft: () => (isOpen === "true" ? setFolded(row, true) : focusRow(above)),
      ArrowRight: () => (isOpen === "false" ? setFolded(row, false) : focusRow(isOpen && shown[at + 1])),
      Enter: () => event.target === row && row.querySelector("a")?.click(),
    }[event.key];
    if (!does || (event.key === "Enter" && event.target !== row)) return;
    event.preventDefault();
    does();
  };

  // --- confirmations

  const inDialog = async (address, options) => {
    const dialog = byId("dialog");
    let confirm;
    try {
      const response = await fetch(address, { credentials: "same-origin", ...options });
      const text = await response.text();
      confirm = new DOMParser().parseFromString(text, "text/html").getElementById("confirm") ?? refusal(text);
    } catch (error) {
      confirm = refusal(`The program did not answer: ${error.message}`);
    }
    byId("dialog-body").replaceChildren(document.adoptNode(confirm));
    if (!dialog.open) dialog.showModal();
    byId("dialog-body").querySelector("[autofocus]")?.focus();
  };

  const refusal = (text) => {
    const box = document.createElement("div");
    box.className = "confirm";
    const said = document.createElement("p");
    said.className = "note bad";
    said.textContent = text.slice(0, 500);
    const row = document.createElement("div");
    row.className = "row";
    const close = document.createElement("button");
    close.className = "button";
    close.dataset.close = "";
    close.autofocus = true;
    close.textContent = "Close";
    row.append(close);
    box.append(said, row);
    return box;
  };

  // --- all of it

  const dress = (root) => {
    for (const figure of root.querySelectorAll("[data-curve]")) draw(figure);
    for (const holder of root.querySelectorAll("[data-graph]")) if (window.cytoscape) drawGraph(holder);
    for (const grid of root.querySelectorAll(".treegrid")) fold(grid);
  };

  document.addEventListener("keydown", onTreeKey);
  document.addEventListener("click", (event) => {
    const target = event.target;
    if (!(target instanceof Element)) return;
    const opens = target.closest("a[data-confirm]");
    if (opens && byId("dialog") && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      inDialog(opens.href);
    } else if (target.closest("dialog [data-close]")) {
      event.preventDefault();
      byId("dialog").close();
    } else if (target.closest("button[data-row]")) {
      const row = target.closest("tr");
      setFolded(row, row.getAttribute("aria-expanded") === "true");
    } else if (target.closest("[data-fold]")) {
      const isFolded = target.closest("[data-fold]").dataset.fold === "close";
      for (const row of document.querySelectorAll(".treegrid tr[aria-expanded]")) setFolded(row, isFolded);
    } else if (target.closest("#pause") && stream) {
      stream.isPaused = !stream.isPaused;
      byId("pause").setAttribute("aria-pressed", String(stream.isPaused));
      byId("pause").textContent = stream.isPaused ? "Go on" : "Pause";
      stream.follow();
    }
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("dialog form[data-act]")) return;
    event.preventDefault();
    inDialog(event.target.action, { method: "POST", body: new URLSearchParams(new FormData(event.target)) });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const { plot } of plots.values()) plot.destroy();
    plots.clear();
    graph?.drawing.destroy();
    graph = null;
    dress(document);
  });
  for (const id of ["pause", "folding"]) byId(id)?.removeAttribute("hidden");
  document.documentElement.classList.add("is-live");
  dress(document);
})();
