// Keeps a page fresh: when the service says that something changed, the page is read anew, and the parts that differ are exchanged. Without this script
// the pages say the same, at the moment they are opened.
"use strict";
(() => {
  const live = document.body.dataset.live;
  if (live === "false" || !window.EventSource) return;
  const badge = document.getElementById("live");
  let reading = false, again = false;
  async function refresh() {
    if (reading) { again = true; return; }
    if (document.hidden) return;
    reading = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-part]")) {
        const other = fresh.getElementById(part.id);
        // What somebody has opened stays open.
        const open = [...part.querySelectorAll("details")].map(it => it.open);
        other?.querySelectorAll("details").forEach((it, number) => { it.open = open[number] ?? false; });
        // What somebody is using is left as it is.
        const used = part.contains(document.activeElement) || (getSelection().rangeCount && !getSelection().isCollapsed && part.contains(getSelection().anchorNode));
        if (other && !used && part.innerHTML !== other.innerHTML) part.replaceChildren(...other.childNodes);
      }
    } catch { /* The service is away; the source below says when it is back. */ }
    finally { reading = false; if (again) { again = false; setTimeout(refresh, 1000); } }
  }
  const source = new EventSource("/v1/events");
  source.addEventListener("sample", refresh);
  source.onopen = () => { badge.hidden = false; };
  source.onerror = () => { badge.hidden = true; };
  // What changes while no queue does is looked at from time to time.
  if (live === "timed") setInterval(refresh, 3000);
  document.addEventListener("visibilitychange", refresh);
})();
