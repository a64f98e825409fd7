//! Pushes of Git to hosts whose refs are in a bucket: what `refdb receive` does with a directory it does here.

use std::thread;

use refdb_testkit::Format;
use refdb_testkit::format::{ObjectFormat, RefFormat};
use refdb_testkit::oracle::Output;
use refdb_testkit::repo::Repo;

use crate::commands::{refdb, said};
use crate::liar::Place;

/// A bucket, hosts that take pushes for it, and somebody who pushes.
struct Scene {
    place: Place,
    url: String,
    pusher: Repo,
    hosts: Vec<Repo>,
}

impl Scene {
    fn new(name: &str, objects: ObjectFormat, percent: u64) -> Scene {
        let format = Format::new(RefFormat::Reftable, objects);
        let place = Place::new(percent);
        let url = place.url(&format!("{name}-{}", objects.name()));
        let pusher = Repo::init(format);
        refdb(&place, &pusher, &["store", "init", &url]).ok();
        let hosts: Vec<Repo> = (0..2).map(|_| Repo::init_bare(format)).collect();
        for (at, host) in hosts.iter().enumerate() {
            host.config("refdb.store", &url);
            // Each finds the objects of the other.
            let other = hosts[1 - at].git_dir().join("objects");
            let alternates = host.git_dir().join("objects/info/alternates");
            let mut text = std::fs::read_to_string(&alternates).unwrap_or_default();
            text.push_str(&format!("{}\n", other.display()));
            std::fs::write(&alternates, text).expect("a file");
            let installed = refdb(&place, host, &["serve-hook", "install"]);
            assert_eq!(installed.code(), 0, "{}", said(&installed));
        }
        Scene {
            place,
            url,
            pusher,
            hosts,
        }
    }

    fn push(&self, host: usize, args: &[&str]) -> Output {
        let path = self.hosts[host].git_dir().display().to_string();
        let (options, refs): (Vec<&str>, Vec<&str>) =
            args.iter().partition(|arg| arg.starts_with("--"));
        let all = ["push"].into_iter().chain(options);
        let mut run = self.pusher.git(all.chain([path.as_str()]).chain(refs));
        for (name, value) in self.place.environment() {
            run = run.env(name, value);
        }
        run.run()
    }

    /// Fails unless the store and the copies of all hosts say the same; returns that.
    fn agreed(&self) -> String {
        let store = ["--store", self.url.as_str(), "for-each-ref"];
        let there = refdb(&self.place, &self.pusher, &store).text();
        for host in &self.hosts {
            let synced = refdb(&self.place, host, &["sync"]);
            assert_eq!(synced.code(), 0, "{}", said(&synced));
            assert_eq!(host.git(["for-each-ref"]).run().text(), there);
            let fsck = ["fsck", "--connectivity-only", "--no-dangling"];
            host.git(fsck).run().ok();
        }
        there
    }
}

#[test]
fn pushes_go_to_a_bucket_and_other_hosts_have_them() {
    for objects in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let scene = Scene::new("receive", objects, 0);
        let commits = &scene.pusher.objects().commits;
        let spec = |at: usize, name: &str| format!("{}:refs/heads/{name}", commits[at]);
        let (main, side) = (spec(0, "main"), spec(1, "side"));
        let pushed = scene.push(0, &["--atomic", &main, &side]);
        assert_eq!(pushed.code(), 0, "{}", said(&pushed));
        // This host has it before Git is told.
        let here = scene.hosts[0].git(["for-each-ref", "--format=%(refname)"]);
        assert_eq!(here.run().text(), "refs/heads/main\nrefs/heads/side");
        assert_eq!(scene.agreed().lines().count(), 2);
        // By the other host: a new one, a deletion, one that is refused, and one that is forced.
        let pushed = scene.push(1, &[&spec(2, "new"), ":refs/heads/side"]);
        assert_eq!(pushed.code(), 0, "{}", said(&pushed));
        scene.hosts[1].config("receive.denyDeletes", "true");
        let refused = scene.push(1, &["--atomic", ":refs/heads/new", &spec(3, "other")]);
        let text = said(&refused);
        assert!(
            refused.code() != 0 && text.contains("deletion prohibited"),
            "{text}"
        );
        let forced = format!("+{}", spec(4, "main"));
        let pushed = scene.push(1, &[&forced]);
        assert_eq!(pushed.code(), 0, "{}", said(&pushed));
        let there = scene.agreed();
        let names: Vec<&str> = there
            .lines()
            .filter_map(|line| line.split('\t').nth(1))
            .collect();
        assert_eq!(names, ["refs/heads/main", "refs/heads/new"]);
        assert!(there.contains(commits[4].as_str()), "{there}");
    }
}

/// Pushes to both hosts at once, while a quarter of all that is stored is lied about: what is told to be done is
/// there, and what is told to be refused is not.
fn pushes_at_once(percent: u64) {
    const EACH: usize = 3;
    let scene = Scene::new(&format!("receive{percent}"), ObjectFormat::Sha1, percent);
    let commits = &scene.pusher.objects().commits;
    let told: Vec<(String, bool)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|host| {
                let scene = &scene;
                scope.spawn(move || {
                    let each = (0..EACH).map(|at| {
                        let name = format!("refs/heads/h{host}-{at}");
                        let pushed = scene.push(host, &[&format!("{}:{name}", commits[at])]);
                        (name, pushed.code() == 0)
                    });
                    each.collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|it| it.join().expect("it ends"))
            .collect()
    });
    let there = scene.agreed();
    for (name, is_done) in &told {
        assert_eq!(there.contains(name.as_str()), *is_done, "{name}: {there}");
    }
    let done = told.iter().filter(|it| it.1).count();
    assert_eq!(done, 2 * EACH, "nobody was in anybody's way");
}

#[test]
fn hosts_that_take_pushes_at_once_agree() {
    pushes_at_once(0);
}

#[test]
fn hosts_that_are_lied_to_agree() {
    pushes_at_once(25);
}
