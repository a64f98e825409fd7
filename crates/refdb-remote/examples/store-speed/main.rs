//! What a store on a shared place must show, measured beside what it does show: `scripts/store-speed`.
//!
//! The argument is the URL of a bucket on a server of this machine, with `NAME` where the name of a store is to
//! stand. Every row is measured several times in turn; what is printed is the median of each figure.
#![expect(clippy::print_stdout, reason = "figures are what it is for")]

mod slow;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use refdb::shared::{MemoryShared, Shared};
use refdb::{RefNameBuf, Store};

use slow::{Delays, Slow};
use work::{Figures, create, fill, init, measure, name, open};

/// How often each row is measured, and how often a store is opened.
const RUNS: usize = 3;
const OPENED: usize = 9;

/// A bucket of S3 in the same region, about.
const FAR: Delays = Delays {
    head: Duration::from_millis(15),
    get: Duration::from_millis(15),
    put: Duration::from_millis(60),
};

/// Reads of tables take twice as long as those of heads.
const COLD: Delays = Delays {
    head: Duration::from_millis(15),
    get: Duration::from_millis(30),
    put: Duration::ZERO,
};

/// What must be shown of a row.
enum Wanted {
    Nothing,
    Rate(f64),
    Late(f64),
    Median(f64),
    Requests(f64, f64),
}

struct Bench {
    url: String,
    rows: Vec<(String, Wanted)>,
    figures: BTreeMap<String, Vec<Figures>>,
    stores: usize,
}

impl Bench {
    /// An empty place on the server, behind delays.
    fn there(&mut self, delays: Delays) -> Arc<Slow> {
        self.stores += 1;
        let url = self.url.replace("NAME", &format!("speed{}", self.stores));
        let place = refdb_remote::open(&url).expect("a URL of a bucket");
        init(&place);
        Slow::new(Arc::new(place), delays)
    }

    fn memory(delays: Delays) -> Arc<Slow> {
        let place = MemoryShared::new();
        init(&place);
        Slow::new(Arc::new(place), delays)
    }

    fn note(&mut self, what: &str, wanted: Wanted, figures: Figures) {
        let known = self.figures.entry(what.to_owned()).or_default();
        if known.is_empty() {
            self.rows.push((what.to_owned(), wanted));
        }
        known.push(figures);
    }

    /// Commits by so many threads, each `each` times.
    fn commits(place: &Arc<Slow>, threads: usize, each: usize) -> Figures {
        let store = open(place);
        // Who made the store counts as somebody else, until some commits are this one's.
        for at in 0..5 {
            create(&store, &format!("refs/first/{at}")).expect("a new name");
        }
        measure(place, threads, each, None, &|thread, at| {
            create(&store, &format!("refs/heads/w{thread}/{at}"))
        })
    }

    fn near(&mut self) {
        let place = self.there(Delays::default());
        let one = Bench::commits(&place, 1, 1500);
        self.note(
            "1 writer: a small commit",
            Wanted::Requests(1.0, 0.0),
            one.clone(),
        );
        self.note("1 writer", Wanted::Rate(1000.0), one);
        let body = vec![7; 48 << 10];
        let raw = measure(&place, 1, 500, None, &|_, at| {
            place.put(&format!("raw/{at}"), &body)
        });
        self.note("(the server: PUT of 48 KiB)", Wanted::Nothing, raw);
        let place = self.there(Delays::default());
        let many = Bench::commits(&place, 64, 600);
        self.note(
            "64 writers, requests",
            Wanted::Requests(0.1, f64::MAX),
            many.clone(),
        );
        self.note("64 writers, one committer", Wanted::Rate(20_000.0), many);
        let memory = Bench::memory(Delays::default());
        let one = Bench::commits(&memory, 1, 3000);
        self.note("(1 writer, place in this process)", Wanted::Nothing, one);
        let memory = Bench::memory(Delays::default());
        let many = Bench::commits(&memory, 64, 600);
        self.note("(64 writers, place in this process)", Wanted::Nothing, many);
    }

    fn far(&mut self) {
        let place = Bench::memory(FAR);
        let many = Bench::commits(&place, 1000, 50);
        self.note("15/60 ms: 1,000 waiting", Wanted::Rate(10_000.0), many);
        let place = self.there(FAR);
        let pace = Some(Duration::from_millis(10));
        let store = open(&place);
        let led = measure(&place, 100, 5, pace, &|thread, at| {
            create(&store, &format!("refs/heads/w{thread}/{at}"))
        });
        self.note(
            "15/60 ms: 100 pushes/s, one leader",
            Wanted::Late(250.0),
            led,
        );
        let place = self.there(FAR);
        let hosts: Vec<Store> = (0..8).map(|_| open(&place)).collect();
        let alone = measure(&place, 100, 5, pace, &|thread, at| {
            create(&hosts[thread % 8], &format!("refs/heads/w{thread}/{at}"))
        });
        self.note(
            "(15/60 ms: 100 pushes/s, 8 hosts without)",
            Wanted::Nothing,
            alone,
        );
    }

    fn reads(&mut self, counts: &[(usize, f64)]) {
        for &(count, most) in counts {
            let near = self.there(Delays::default());
            fill(&open(&near), count);
            let far = Slow::new(near.clone() as Arc<dyn Shared>, COLD);
            let wanted = name(&format!("refs/heads/topic/{:03}/{:07}", 77, 77));
            for _ in 0..OPENED {
                let cold = measure(&far, 1, 1, None, &|_, _| read(&open(&far), &wanted));
                let what = format!("15/30 ms: cold open of {count} refs");
                self.note(&what, Wanted::Median(most), cold);
            }
            let store = open(&far);
            read(&store, &wanted).expect("it is there");
            let writer = open(&near);
            let late = name("refs/heads/late");
            create(&writer, "refs/heads/late").expect("a new name");
            let fresh = measure(&far, 1, 1, None, &|_, _| read(&store, &late));
            let what = "15/30 ms: fresh read of what was just committed";
            self.note(what, Wanted::Requests(0.0, 1.0), fresh);
            let warm = measure(&far, 1, 50, None, &|_, _| read(&store, &wanted));
            self.note(
                "15/30 ms: fresh read, warm",
                Wanted::Requests(0.0, 1.0),
                warm,
            );
        }
    }

    fn tell(&self) {
        let head = ["", "a second", "median", "99%", "PUT", "GET", "refused"];
        println!(
            "{:<48}{:>9}{:>9}{:>9}{:>8}{:>8}{:>9}  wanted",
            head[0], head[1], head[2], head[3], head[4], head[5], head[6]
        );
        for (what, wanted) in &self.rows {
            let of = |get: fn(&Figures) -> f64| {
                let mut all: Vec<f64> = self.figures[what].iter().map(get).collect();
                all.sort_unstable_by(f64::total_cmp);
                all[all.len() / 2]
            };
            let undisturbed = of(|it| it.undisturbed);
            let (rate, median, late) = (of(|it| it.rate), of(|it| it.median), of(|it| it.late));
            let (writes, reads) = (of(|it| it.writes), of(|it| it.reads));
            let refused: usize = self.figures[what].iter().map(|it| it.refused).sum();
            let said = |is: bool, what: String| match is {
                true => format!("{what}: reached"),
                false => format!("{what}: NOT reached"),
            };
            let verdict = match *wanted {
                Wanted::Nothing => String::new(),
                Wanted::Rate(least) => {
                    let what = format!("{least} a second ({undisturbed:.0} by the median)");
                    said(rate >= least, what)
                }
                Wanted::Late(most) => said(late <= most, format!("99% <= {most} ms")),
                Wanted::Median(most) => said(median <= most, format!("<= {most} ms")),
                Wanted::Requests(put, get) if get == f64::MAX => {
                    said(writes <= put, format!("PUT <= {put}"))
                }
                Wanted::Requests(put, get) => {
                    let is = writes <= put && reads <= get;
                    said(is, format!("PUT {put}, GET {get}"))
                }
            };
            println!(
                "{what:<48}{rate:>9.0}{median:>9.2}{late:>9.2}{writes:>8.3}{reads:>8.3}{refused:>9}  {verdict}"
            );
        }
    }
}

fn read(store: &Store, name: &RefNameBuf) -> refdb::Result<()> {
    let found = store.resolve(name.as_name())?;
    found
        .map(drop)
        .ok_or_else(|| refdb::Error::corrupt(std::path::Path::new(""), "it is not there"))
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn main() {
    let url = std::env::args()
        .nth(1)
        .expect("the URL of a bucket, with NAME in it");
    let only = std::env::args().nth(2).unwrap_or_default();
    let wants = |part: &str| only.is_empty() || only == part;
    let (begun, before) = (Instant::now(), load());
    let mut bench = Bench {
        url,
        rows: Vec::new(),
        figures: BTreeMap::new(),
        stores: 0,
    };
    for _ in 0..RUNS {
        if wants("near") {
            bench.near();
        }
        if wants("far") {
            bench.far();
        }
    }
    if wants("reads") {
        bench.reads(&[(100_000, 60.0), (1_000_000, 120.0)]);
    }
    println!(
        "medians of {RUNS} runs in turn, {OPENED} of a cold open; times in ms; PUT and GET for each"
    );
    bench.tell();
    println!(
        "{} s; load of this machine before {before}, after {}",
        begun.elapsed().as_secs(),
        load()
    );
}
