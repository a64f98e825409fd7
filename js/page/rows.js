// A list of rows, of which only those in sight are there: millions are no more work than ten.

// How high a list may be: browsers draw nothing beyond some such height.
const HEIGHT_MAX = 12e6;

/** A listbox of `count` rows; `row(index)` gives the element of one, and `chosen(index)` is told of a choice. */
class Rows {
    constructor(box, row, chosen) {
        this.box = box;
        this.space = box.firstElementChild;
        this.row = row;
        this.chosen = chosen;
        this.count = 0;
        this.active = -1;
        this.top = 0;
        box.addEventListener("scroll", () => this.scrolled());
        box.addEventListener("keydown", (event) => this.key(event));
        box.addEventListener("click", (event) => {
            const at = event.target.closest(".row")?.dataset.index;
            if (at !== undefined) this.choose(Number(at));
        });
        // What is chosen stays in sight, also when what is told of it takes room.
        new ResizeObserver(() => this.reveal()).observe(box);
    }

    get height() {
        return matchMedia("(max-width: 700px)").matches ? 44 : 26;
    }

    get visible() {
        return Math.max(1, Math.floor(this.box.clientHeight / this.height));
    }

    /** Says how many rows there are now; `keep` leaves the place where it is. */
    show(count, keep = false) {
        this.count = count;
        const height = Math.min(count * this.height, HEIGHT_MAX);
        this.space.style.height = `${height}px`;
        if (!keep) {
            this.active = -1;
            this.top = 0;
            this.box.scrollTop = 0;
        }
        this.draw();
    }

    // The first row in sight, by where the bar stands: a pixel is many rows where there are too many.
    scrolled() {
        if (this.expected !== undefined && Math.abs(this.box.scrollTop - this.expected) < 2) {
            this.expected = undefined;
            return;
        }
        this.expected = undefined;
        this.top = this.box.scrollTop * this.scale();
        this.draw();
    }

    scale() {
        const way = this.space.offsetHeight - this.box.clientHeight;
        return way > 0 ? Math.max(0, this.count - this.box.clientHeight / this.height) / way : 0;
    }

    key(event) {
        const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: this.visible, PageUp: -this.visible, Home: -Infinity, End: Infinity };
        const move = moves[event.key];
        if (move === undefined || event.ctrlKey || event.altKey || event.metaKey || this.count === 0) return;
        event.preventDefault();
        this.choose(Math.min(this.count - 1, Math.max(0, this.active + move)));
    }

    choose(index) {
        this.active = index;
        this.reveal();
        this.chosen(index);
    }

    reveal() {
        const index = this.active;
        if (index >= 0 && index < this.top) this.top = index;
        if (index > this.top + this.visible - 1) this.top = index - this.visible + 1;
        const scale = this.scale();
        if (scale > 0) {
            this.box.scrollTop = this.top / scale;
            this.expected = this.box.scrollTop;
        }
        this.draw();
    }

    draw() {
        for (const row of [...this.box.querySelectorAll(".row")]) row.remove();
        const last = Math.min(this.count, Math.ceil(this.top) + this.visible + 2);
        const first = Math.max(0, Math.floor(this.top));
        for (let index = first; index < last; index++) {
            const row = this.row(index);
            row.classList.add("row");
            row.id = `row-${index}`;
            row.dataset.index = index;
            row.setAttribute("role", "option");
            row.setAttribute("aria-posinset", index + 1);
            row.setAttribute("aria-setsize", this.count);
            row.setAttribute("aria-selected", String(index === this.active));
            row.style.top = `${this.box.scrollTop + (index - this.top) * this.height}px`;
            this.box.append(row);
        }
        if (this.active >= 0) this.box.setAttribute("aria-activedescendant", `row-${this.active}`);
        else this.box.removeAttribute("aria-activedescendant");
    }
}
