"use strict";
document.addEventListener("click", function (event) {
    const target = event.target.closest("[data-page]");
    if (target) {
        event.preventDefault();
        parent.postMessage({ openPage: target.getAttribute("data-page") }, "*");
        return;
    }
    const head = event.target.closest("th[data-sort]");
    if (head) { sortBy(head); }
});
function sortBy(head) {
    const rows = [...head.closest("table").tBodies[0].rows];
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    const value = (row) => row.cells[column].getAttribute("data-value") ?? row.cells[column].innerText;
    const compare = head.getAttribute("data-sort") === "number"
        ? (a, b) => (a === "") - (b === "") || (down ? Number(b) - Number(a) : Number(a) - Number(b))
        : (a, b) => (down ? -1 : 1) * a.localeCompare(b, undefined, { numeric: true });
    const sorted = rows.map((row) => [value(row), row]).sort((a, b) => compare(a[0], b[0]));
    for (const other of head.parentNode.cells) { other.removeAttribute("aria-sort"); }
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    head.closest("table").tBodies[0].append(...sorted.map((pair) => pair[1]));
}
for (const log of document.querySelectorAll("pre.log")) { log.scrollTop = log.scrollHeight; }
function markNeighbours(event) {
    const number = event.currentTarget.getAttribute("data-node");
    const near = event.type === "mouseenter" || event.type === "focus";
    for (const edge of document.querySelectorAll(`.graph [data-from="${number}"], .graph [data-to="${number}"]`)) {
        edge.classList.toggle("near", near);
        for (const end of [edge.getAttribute("data-from"), edge.getAttribute("data-to")]) {
            document.querySelector(`.graph [data-node="${end}"]`).classList.toggle("near", near);
        }
    }
}
for (const node of document.querySelectorAll(".graph [data-node]")) {
    for (const name of ["mouseenter", "mouseleave", "focus", "blur"]) { node.addEventListener(name, markNeighbours); }
}
