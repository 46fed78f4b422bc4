// Pages of a folder may start no worker: there, the search runs in a frame of the page instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.document.open();
      this.inside.postMessage = (data) => this.tell(data);
      this.inside.document.write(`<script src="${url}"></` + "script>");
      this.inside.document.close();
      this.loaded = new Promise((done) => this.inside.addEventListener("load", done));
    }
    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}

// What scrolls is reached by keys, and the buttons of each piece of code have a name of their own.
let pieces = 0;
new MutationObserver(() => {
  for (const buttons of document.querySelectorAll(".md-code__nav:not([aria-label])")) buttons.setAttribute("aria-label", `Code ${++pieces}`);
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
}).observe(document.documentElement, { childList: true, subtree: true });
