//! Cursors of a whole store against a sorted map: seeks in any direction, prefixes, exclusions, and
//! snapshots that nothing invalidates.

use std::collections::BTreeMap;

use refdb::{Edit, ObjectId, Optimize, Part, RefName, Refs, Resolved};
use refdb_testkit::clone_like::clone_like;
use refdb_testkit::objects::Objects;
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::{Format, RefFormat, for_every_format, ours};

type Map = BTreeMap<Vec<u8>, String>;

/// Reads up to `count` names.
fn take(refs: &mut Refs, count: usize) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    while names.len() < count {
        match refs.next().expect("the store is whole") {
            Some(record) => names.push(record.name.as_bytes().to_vec()),
            None => break,
        }
    }
    names
}

/// A name from the store, cut or changed so that it may lie anywhere.
fn some_name(rng: &mut Rng, names: &[Vec<u8>]) -> Vec<u8> {
    let mut name = rng.pick(names).clone();
    match rng.below(4) {
        0 => name.truncate(rng.below(name.len() + 1)),
        1 => name.push(b'/' + u8::try_from(rng.below(3)).expect("a small number")),
        2 => name.push(0xff),
        _ => {}
    }
    name
}

/// Everything about a ref, in one text.
fn shown(record: &refdb::RefRecord<'_>) -> String {
    let (name, broken) = (record.name, record.broken);
    let (target, peeled, packed) = (record.target, record.peeled, record.packed);
    let bad_name = record.has_bad_name();
    format!("{name} {target:?} {peeled:?} {packed} {broken} {bad_name}")
}

fn ref_name(text: &str) -> RefName<'_> {
    RefName::new(text).expect("a good name")
}

fn store_of(
    format: Format,
) -> (
    refdb_testkit::clone_like::CloneLike,
    refdb_git::Repository,
    Map,
) {
    let clone = clone_like(format, 3000);
    let repository = ours::open(&clone.repo.git_dir());
    let mut map = Map::new();
    for listed in clone.repo.refs() {
        map.insert(listed.name.to_vec(), listed.id);
    }
    (clone, repository, map)
}

for_every_format! {
    fn seeks_in_any_direction(format) {
        let (_clone, repository, map) = store_of(format);
        let names: Vec<Vec<u8>> = map.keys().cloned().collect();
        let mut refs = repository.store().refs().expect("a cursor");
        assert_eq!(take(&mut refs, usize::MAX), names, "a fresh cursor");
        let mut rng = Rng::new(7);
        for round in 0..400 {
            let from = some_name(&mut rng, &names);
            let count = rng.below(20);
            let (expected, what): (Vec<Vec<u8>>, _) = if rng.percent(50) {
                refs.seek(&from).expect("a seek");
                (map.range(from.clone()..).map(|(name, _)| name.clone()).collect(), "seek")
            } else {
                refs.seek_prefix(&from).expect("a seek");
                let starts = names.iter().filter(|name| name.starts_with(&from));
                (starts.cloned().collect(), "prefix")
            };
            let expected = &expected[..count.min(expected.len())];
            let found = take(&mut refs, count);
            assert_eq!(found, expected, "round {round}: {what} {from:?}");
        }
    }

    fn all_refs_one_after_the_other(format) {
        let (_clone, repository, map) = store_of(format);
        let store = repository.store();
        let oid = ObjectId::from_hex(map.values().next().expect("a ref").as_bytes());
        let oid = oid.expect("an object id");
        let mut transaction = store.transaction();
        for number in 0..4000 {
            let (name, target) = (format!("refs/more/{number}"), format!("refs/more/{}", number - 1));
            let edit = match number % 10 {
                9 => Edit::symbolic(ref_name(&name), ref_name(&target)),
                _ => Edit::update(ref_name(&name), oid).skip_object_check(),
            };
            transaction.add(edit).expect("a good edit");
        }
        let outcome = transaction.commit().expect("nobody is in the way");
        assert!(outcome.afterwards.is_empty());
        let mut refs = store.refs().expect("a cursor").excluding([b"refs/more/1".to_vec()]);
        let mut expected = Vec::new();
        while let Some(record) = refs.next().expect("the store is whole") {
            expected.push(shown(&record));
        }
        assert!(expected.len() > 5000, "several batches");
        let mut found = Vec::new();
        refs.seek(b"").expect("a seek");
        let is_whole = refs.each(|record| {
            found.push(shown(&record));
            Ok::<_, refdb::Error>(true)
        });
        assert!(is_whole.expect("the store is whole"));
        assert!(found == expected);

        // Stopped, and failed, early and late.
        for most in [1, 3000, 5000] {
            for fails in [false, true] {
                let mut count = 0;
                refs.seek(b"").expect("a seek");
                let ended = refs.each(|_| {
                    count += 1;
                    match fails && count == most {
                        true => Err(refdb::Error::new(refdb::ErrorKind::Misuse, "enough")),
                        false => Ok(count < most),
                    }
                });
                assert_eq!(count, most);
                assert_eq!(ended.ok(), (!fails).then_some(false));
            }
        }
    }

    fn parts_are_all_refs_in_their_order(format) {
        let objects = Objects::standard(format.objects);
        let (commits, tag) = (&objects.commits, &objects.tags[0]);
        let name = |number: usize| format!("refs/{:02x}/{number:05}-{}", number % 7, "x".repeat(40));
        let create = |numbers: std::ops::Range<usize>, value: &str| {
            numbers.map(|number| format!("create {} {value}\n", name(number))).collect::<String>()
        };
        // A large table or packed-refs, refs over it in files or smaller tables, and holes. Each of these files is
        // read fifty times: they are few.
        const PACKED: usize = 12_000;
        const ALL: usize = PACKED + 700;
        let repo = Repo::init_bare_with(format, create(0..PACKED, &commits[0]));
        repo.update_refs(create(PACKED..ALL, &tag.id));
        repo.update_refs((0..300).map(|at| format!("update {} {}\n", name(at * 37), commits[1])).collect::<String>());
        repo.update_refs((0..500).map(|at| format!("delete {}\n", name(at * 3 + 1))).collect::<String>());
        repo.git(["symbolic-ref", "refs/02/link", &name(5)]).run().ok();
        let worktree = repo.worktree("side");
        worktree.git(["update-ref", "refs/worktree/own", &commits[2]]).run().ok();
        let git_dir = repo.git_dir().join("worktrees/side");
        for git_dir in [repo.git_dir(), git_dir] {
            let repository = ours::open(&git_dir);
            let mut rng = Rng::new(5);
            for round in 0..20 {
                let excluded: Vec<Vec<u8>> = (0..rng.below(4))
                    .map(|_| name(rng.below(ALL)).into_bytes()[..rng.below(14) + 1].to_vec())
                    .collect();
                let start = name(rng.below(ALL)).into_bytes();
                let kind = round % 3;
                let cursor = || {
                    let refs = repository.store().refs().expect("a cursor");
                    let mut refs = refs.excluding(excluded.iter().filter(|it| it.len() > 5).cloned());
                    match kind {
                        0 => refs.seek(b""),
                        1 => refs.seek(&start),
                        _ => refs.seek_prefix(&start[..7]),
                    }
                    .expect("a seek");
                    refs
                };
                let (mut refs, mut expected) = (cursor(), Vec::new());
                while let Some(record) = refs.next().expect("the store is whole") {
                    expected.push(shown(&record));
                }
                let maker = || {
                    |part: &mut Part<'_>| {
                        let mut found = Vec::new();
                        part.each(|record| {
                            found.push(shown(record));
                            Ok::<_, refdb::Error>(())
                        })
                        .expect("the store is whole");
                        found
                    }
                };
                let (mut refs, mut found, mut parts) = (cursor(), Vec::new(), 0);
                let is_whole = refs.by_parts(maker, |part| {
                    assert!(part.len() < 10_000, "a part of {} refs", part.len());
                    found.extend(part);
                    parts += 1;
                    Ok::<_, refdb::Error>(true)
                });
                assert!(is_whole.expect("the store is whole"));
                assert!(parts >= expected.len() / 4096, "{parts} parts of {}", expected.len());
                assert!(found == expected, "{round}: {} instead of {}", found.len(), expected.len());

                // Stopped, and failed, early and late.
                let (stop, fails) = (rng.below(parts) + 1, rng.below(2) == 0);
                let mut taken = 0;
                let ended = cursor().by_parts(maker, |_| {
                    taken += 1;
                    match fails && taken == stop {
                        true => Err(refdb::Error::new(refdb::ErrorKind::Misuse, "enough")),
                        false => Ok(taken < stop),
                    }
                });
                assert_eq!((taken, ended.ok()), (stop, (!fails).then_some(false)));
            }
        }
    }

    fn what_lies_before_damage_is_read(format) {
        let commit = &Objects::standard(format.objects).commits[0];
        let one = |number: usize| format!("create refs/many/{number:05}-{} {commit}\n", "x".repeat(40));
        let repo = Repo::init_bare_with(format, (0..30_000).map(one).collect::<String>());
        let path = match format.refs {
            RefFormat::Files => repo.git_dir().join("packed-refs"),
            RefFormat::Reftable => {
                let stack = repo.git_dir().join("reftable");
                let list = std::fs::read_to_string(stack.join("tables.list")).expect("a list");
                stack.join(list.lines().next().expect("a table"))
            }
        };
        let whole = std::fs::read(&path).expect("it can be read");
        // Early, in the middle, late; and in blocks one after the other, at one of which a part ends.
        for place in (1..8).map(|eighth| whole.len() / 8 * eighth).chain((40..56).map(|block| block << 12)) {
            let mut damaged = whole.clone();
            let at = match format.refs {
                // An id.
                RefFormat::Files => {
                    let line = damaged[place..].iter().position(|&byte| byte == b'\n');
                    place + line.expect("another line") + 1
                }
                // The head of a block, or its first record.
                RefFormat::Reftable if place % 4096 == 0 => place + 4,
                RefFormat::Reftable => place / 4096 * 4096,
            };
            damaged[at..at + 3].fill(0xff);
            std::fs::remove_file(&path).expect("it can be replaced");
            std::fs::write(&path, damaged).expect("it can be written");
            let repository = ours::open_damaged(&repo.git_dir());
            let refs = || {
                let mut refs = repository.store().refs().expect("a cursor");
                refs.seek_prefix(b"refs/many/").map(|()| refs)
            };
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            let read = refs().and_then(|mut refs| {
                while let Some(record) = refs.next()? {
                    expected.push(shown(&record));
                }
                Ok(())
            });
            let in_parts = refs().and_then(|mut refs| {
                let maker = || {
                    |part: &mut Part<'_>| {
                        let mut made = Vec::new();
                        let read = part.each(|record| {
                            made.push(shown(record));
                            Ok::<_, refdb::Error>(())
                        });
                        (made, read)
                    }
                };
                refs.by_parts(maker, |(made, read)| {
                    found.extend(made);
                    read.map(|()| true)
                })
            });
            let told = read.expect_err("damage is told").to_string();
            assert_eq!(in_parts.expect_err("damage is told").to_string(), told, "{place}");
            assert!(found == expected, "{place}: {} instead of {}", found.len(), expected.len());
        }
    }

    fn exclusions_are_jumped_over(format) {
        let (_clone, repository, map) = store_of(format);
        let names: Vec<Vec<u8>> = map.keys().cloned().collect();
        let mut rng = Rng::new(11);
        for round in 0..60 {
            let excluded: Vec<Vec<u8>> =
                (0..rng.below(6)).map(|_| some_name(&mut rng, &names)).collect();
            // Excluding the empty prefix excludes everything.
            let is_left = |name: &&Vec<u8>| !excluded.iter().any(|prefix| name.starts_with(prefix));
            let mut refs = repository.store().refs().expect("a cursor").excluding(excluded.clone());
            let expected: Vec<_> = names.iter().filter(is_left).cloned().collect();
            assert_eq!(take(&mut refs, usize::MAX), expected, "round {round}: {excluded:?}");
            let prefix = some_name(&mut rng, &names);
            refs.seek_prefix(&prefix).expect("a seek");
            let expected: Vec<_> =
                expected.into_iter().filter(|name| name.starts_with(&prefix)).collect();
            let found = take(&mut refs, usize::MAX);
            assert_eq!(found, expected, "round {round}: {excluded:?} in {prefix:?}");
        }
    }

    fn a_cursor_keeps_its_snapshot(format) {
        let (clone, repository, map) = store_of(format);
        let names: Vec<Vec<u8>> = map.keys().cloned().collect();
        let store = repository.store();
        let mut refs = store.refs().expect("a cursor");
        let first = take(&mut refs, 1);
        let commit = ObjectId::from_hex(clone.objects.commits[0].as_bytes()).expect("an id");
        let mut transaction = store.transaction();
        for name in names.iter().filter(|name| name.starts_with(b"refs/tags/")) {
            transaction.add(Edit::delete(RefName::new(name).expect("a good name"))).expect("a name");
        }
        let new = RefName::new("refs/heads/zzz/new").expect("a name");
        transaction.add(Edit::update(new, commit)).expect("a commit");
        let outcome = transaction.commit().expect("a commit");
        assert!(outcome.afterwards.is_empty());
        store.optimize(&Optimize::default()).expect("an optimized store");
        // The tables or the file that the cursor was made from are gone by now.
        let rest = take(&mut refs, usize::MAX);
        assert_eq!([first, rest].concat(), names);
        let mut refs = store.refs().expect("a cursor");
        refs.seek_prefix(b"refs/tags/").expect("a seek");
        assert_eq!(take(&mut refs, 1), Vec::<Vec<u8>>::new());
    }

    fn refs_of_an_object_among_many(format) {
        let objects = Objects::standard(format.objects);
        let (commits, tag) = (&objects.commits, &objects.tags[0]);
        // Names that share little, in no order.
        let name = |number: u32| format!("refs/topics/{:08x}-{number}", number.wrapping_mul(2_654_435_761));
        let script = |verb: &str, numbers: &mut dyn Iterator<Item = u32>, value: &dyn Fn(u32) -> String| {
            numbers.map(|at| format!("{verb} {} {}\n", name(at), value(at))).collect::<String>()
        };
        let many = script("create", &mut (0..40_000), &|at| commits[at as usize % 3].clone());
        let repo = Repo::init_bare_with(format, many);
        repo.update_refs(script("update", &mut (7..40_000).step_by(1000), &|_| tag.id.clone()));
        repo.git(["pack-refs", "--all"]).run().ok();
        // Refs in files or a smaller table: in front of values that are the wanted one, or others; and new ones.
        repo.update_refs(script("update", &mut (0..40_000).step_by(97), &|at| commits[at as usize / 97 % 3].clone()));
        repo.update_refs(script("create", &mut (40_000..40_300), &|at| commits[at as usize % 3].clone()));
        repo.update_refs(format!("create refs/heads/main {}\n", commits[1]));
        let link = ["symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main"];
        repo.git(link).run().ok();
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        for id in [&commits[0], &commits[1], &tag.id, &tag.peeled] {
            let oid = ObjectId::from_hex(id.as_bytes()).expect("an id");
            let told = repo.git(["for-each-ref", "--format=%(refname)", "--points-at", id]);
            let told: Vec<String> = told.run().text().lines().map(str::to_owned).collect();
            let mut refs = store.refs_of_objects(&[oid]).expect("a cursor");
            let (mut found, mut all) = (Vec::new(), Vec::new());
            while let Some(record) = refs.next().expect("the store is whole") {
                all.push(record.name.to_string());
                let resolved = store.resolve(record.name).expect("it can be read");
                let leads_there = |to: &Resolved| to.oid == oid || to.peeled == Some(oid);
                // Where nobody stored what a tag peels to, it is among them to be looked at.
                let is_tag = |to: &Resolved| to.oid.to_string() == tag.id && tag.peeled == *id;
                // Git lists no root refs here.
                let is_listed = record.name.as_bytes().starts_with(b"refs/");
                if is_listed && resolved.is_some_and(|to| leads_there(&to) || is_tag(&to)) {
                    found.push(record.name.to_string());
                }
            }
            // All at once, and behind the first one.
            for skipped in [0, 1] {
                let mut refs = store.refs_of_objects(&[oid]).expect("a cursor");
                let mut names = Vec::new();
                for _ in 0..skipped {
                    let first = refs.next().expect("the store is whole").expect("a ref");
                    names.push(first.name.to_string());
                }
                let whole = refs.each(|record| {
                    names.push(record.name.to_string());
                    Ok::<_, refdb::Error>(true)
                });
                assert!(whole.expect("the store is whole"));
                assert!(names == all, "{id}: {} instead of {}", names.len(), all.len());
            }
            assert!(told.len() > 10 && told.is_sorted(), "{} of {id}", told.len());
            assert_eq!(found.len(), told.len(), "{id}");
            for (found, told) in found.iter().zip(&told) {
                assert_eq!(found, told, "{id}");
            }
        }
    }

    fn refs_by_object_id(format) {
        let (clone, repository, map) = store_of(format);
        let mut rng = Rng::new(3);
        let mut some = 0;
        for _ in 0..40 {
            let id = if rng.percent(30) {
                rng.pick(&clone.objects.tags).id.clone()
            } else {
                rng.pick(&clone.objects.commits).clone()
            };
            let oid = ObjectId::from_hex(id.as_bytes()).expect("an id");
            let found: Vec<Vec<u8>> = repository
                .store()
                .refs_by_oid(oid)
                .expect("an answer")
                .into_iter()
                .map(|found| found.name.as_bytes().to_vec())
                .collect();
            let peeled = |tag: &&refdb_testkit::objects::Tag| tag.peeled == id;
            let tags: Vec<&str> =
                clone.objects.tags.iter().filter(peeled).map(|tag| tag.id.as_str()).collect();
            let expected: Vec<Vec<u8>> = map
                .iter()
                .filter(|(name, value)| {
                    let is_symref = name.as_slice() == b"HEAD" || name.ends_with(b"origin/HEAD");
                    !is_symref && (**value == id || tags.contains(&value.as_str()))
                })
                .map(|(name, _)| name.clone())
                .collect();
            some += usize::from(!expected.is_empty());
            assert_eq!(found, expected, "{id}");
        }
        assert!(some > 10, "only {some} ids were the value of a ref");
    }
}
