//! Repair of stacks that no writer leaves behind: with tables whose records are whole, while something about them is
//! wrong. What Git reads of them before, it reads afterwards.

use std::fs;
use std::path::PathBuf;

use bstr::ByteSlice;
use refdb::{Edit, ObjectId, RefName};
use refdb_maintenance::repair::{Options, plan};
use refdb_maintenance::verify::{Damage, deep};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, forge, ours};
use reftable::{LogRecord, LogUpdate, LogValue, RefRecord, RefValue, WriteOptions, Writer};

const FORMATS: [Format; 2] = [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256];

/// What one table says: of each ref which commit it has, if any; and, with their update indices, entries of reflogs.
#[derive(Clone, Default)]
struct Says<'s> {
    indices: (u64, u64),
    refs: &'s [(&'s str, Option<usize>)],
    logs: &'s [(&'s str, u64, usize)],
}

fn bytes_of(id: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&id[at..at + 2], 16).expect("digits");
    (0..id.len()).step_by(2).map(digits).collect()
}

impl Says<'_> {
    fn table(&self, repo: &Repo) -> Vec<u8> {
        self.table_with(repo, |_| self.indices.0)
    }

    /// Writes the table, with these update indices of refs; each name stands there as a whole.
    fn table_with(&self, repo: &Repo, index_of: impl Fn(&str) -> u64) -> Vec<u8> {
        let hash = repo.format().objects;
        let id = |at: usize| bytes_of(&repo.objects().commits[at]);
        let mut options = WriteOptions::new(hash);
        options.restart_interval = 1;
        (options.min_update_index, options.max_update_index) = self.indices;
        // Log entries may be outside; the header is put right below.
        let greatest = self.logs.iter().map(|log| log.1).max();
        options.max_update_index = options.max_update_index.max(greatest.unwrap_or_default());
        let mut writer = Writer::new(Vec::new(), options).expect("sound options");
        for (name, commit) in self.refs {
            let oid = commit.map(id);
            let value = match &oid {
                _ if *name == "HEAD" => RefValue::Symref(b"refs/heads/main"),
                Some(oid) => RefValue::Direct(oid),
                None => RefValue::Deletion,
            };
            let record = RefRecord {
                name: name.as_bytes(),
                update_index: index_of(name),
                value,
            };
            writer.add_ref(record).expect("a record that fits");
        }
        for (name, update_index, commit) in self.logs {
            let (old, new) = (vec![0; hash.raw_len()], id(*commit));
            let update = LogUpdate {
                old: &old,
                new: &new,
                name: b"A",
                email: b"a@example.com",
                time: 1_700_000_000,
                tz: 0,
                message: b"m\n",
            };
            let record = LogRecord {
                name: name.as_bytes(),
                update_index: *update_index,
                value: LogValue::Update(update),
            };
            writer.add_log(record).expect("a record that fits");
        }
        let table = writer.finish().expect("memory takes everything").sink;
        forge::with_indices(table, self.indices.0, self.indices.1)
    }
}

fn stack(repo: &Repo) -> PathBuf {
    repo.git_dir().join("reftable")
}

/// Makes a stack of these tables, each named by these update indices.
fn repo(format: Format, tables: &[((u64, u64), Vec<u8>)]) -> Repo {
    let repo = Repo::init(format);
    for entry in fs::read_dir(stack(&repo)).expect("a folder") {
        fs::remove_file(entry.expect("an entry").path()).expect("there");
    }
    let mut list = String::new();
    for (at, ((min, max), table)) in tables.iter().enumerate() {
        let name = format!("0x{min:012x}-0x{max:012x}-{at:08x}.ref");
        fs::write(stack(&repo).join(&name), table).expect("it can be written");
        list += &(name + "\n");
    }
    fs::write(stack(&repo).join("tables.list"), list).expect("it can be written");
    repo
}

fn of(format: Format, tables: &[Says<'_>]) -> Repo {
    let writer = Repo::init(format);
    let tables = tables.iter().map(|it| (it.indices, it.table(&writer)));
    repo(format, &tables.collect::<Vec<_>>())
}

/// What Git lists, `HEAD` included.
fn listed(repo: &Repo) -> String {
    let format = "--format=%(refname) %(objectname) %(symref)";
    let args = ["for-each-ref", "--include-root-refs", format];
    repo.git(args).run().text()
}

fn check(repo: &Repo) -> Vec<Damage> {
    let mut found = Vec::new();
    let repository = ours::open_damaged(&repo.git_dir());
    deep(&repository, &mut |damage| found.push(damage.clone())).expect("it can be read");
    found
}

/// Repairs once, after which nothing is left to mend; returns what was noted.
fn repair(repo: &Repo, what: &str) -> Vec<String> {
    assert_ne!(check(repo), [], "{what}");
    let repository = ours::open_damaged(&repo.git_dir());
    let made = plan(&repository, Options::default()).expect(what);
    let notes = made.notes().iter().map(|note| note.what.clone()).collect();
    made.apply().expect(what);
    assert_eq!(check(repo), [], "{what}");
    notes
}

/// What Git listed before the repair it lists afterwards.
fn stays(repo: &Repo, what: &str) -> Vec<String> {
    let before = listed(repo);
    assert_ne!(before, "", "{what}");
    let notes = repair(repo, what);
    assert_eq!(listed(repo), before, "{what}");
    notes
}

/// Branches `a` and `b` and `main`, of the first transaction.
const FIRST: Says<'static> = Says {
    indices: (1, 1),
    refs: &[
        ("HEAD", None),
        ("refs/heads/a", Some(1)),
        ("refs/heads/b", Some(2)),
        ("refs/heads/main", Some(0)),
    ],
    logs: &[("refs/heads/a", 1, 1), ("refs/heads/main", 1, 0)],
};

/// `a` moves on, `b` is deleted.
const SECOND: Says<'static> = Says {
    indices: (2, 2),
    refs: &[("refs/heads/a", Some(3)), ("refs/heads/b", None)],
    logs: &[("refs/heads/a", 2, 3)],
};

#[test]
fn tables_with_update_indices_in_common_are_merged_in_the_order_of_the_list() {
    for format in FORMATS {
        for (first, second) in [
            ((1, 2), (2, 3)),
            ((1, 3), (2, 2)),
            ((1, 1), (1, 1)),
            ((2, 3), (1, 2)),
        ] {
            let first = Says {
                indices: first,
                logs: &[],
                ..FIRST
            };
            let second = Says {
                indices: second,
                logs: &[],
                ..SECOND
            };
            let third = Says {
                indices: (4, 4),
                refs: &[("refs/heads/c", Some(4))],
                logs: &[("refs/heads/c", 4, 4)],
            };
            let what = format!("{format}: {:?} and {:?}", first.indices, second.indices);
            let repo = of(format, &[first, second, third]);
            assert_eq!(stays(&repo, &what), [""; 0], "{what}");
            let list = fs::read_to_string(stack(&repo).join("tables.list")).expect("a list");
            assert_eq!(list.lines().count(), 2, "{what}: {list}");
        }
    }
}

/// Changes the bytes of the ref block of a table.
fn with_blocks(table: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut table = table.to_vec();
    change(&mut table);
    table
}

fn replace(bytes: &mut [u8], old: &str, new: &str) {
    let at = bytes.windows(old.len()).position(|it| it == old.as_bytes());
    bytes[at.expect("it is there")..][..old.len()].copy_from_slice(new.as_bytes());
}

#[test]
fn a_block_with_one_flaw_loses_no_ref() {
    for format in FORMATS {
        let writer = Repo::init(format);
        let without_logs = Says { logs: &[], ..FIRST };
        let table = without_logs.table(&writer);
        let footer = if table[4] == 1 { 68 } else { 72 };
        // Before the number of offsets, the offsets of four records.
        let restarts = table.len() - footer - 2 - 12..table.len() - footer - 2;
        let twice = |bytes: &mut [u8]| {
            let (first, second) = bytes[restarts.clone()].split_at_mut(3);
            second[..3].copy_from_slice(first);
        };
        let doubled = |bytes: &mut [u8]| replace(bytes, "refs/heads/b", "refs/heads/a");
        let unsorted = |bytes: &mut [u8]| replace(bytes, "refs/heads/a", "refs/heads/c");
        let flawed =
            |change: &dyn Fn(&mut [u8])| repo(format, &[((1, 1), with_blocks(&table, change))]);
        assert_eq!(stays(&flawed(&twice), "restart offsets"), [""; 0]);
        let repo = flawed(&doubled);
        let first = format!("refs/heads/a {}", repo.objects().commits[1]);
        assert!(
            listed(&repo)
                .lines()
                .nth(1)
                .is_some_and(|line| line.trim() == first)
        );
        let notes = repair(&repo, "twice");
        let is_told = notes[0].contains("refs/heads/a stands there twice");
        assert!(is_told && notes.len() == 1, "{notes:?}");
        assert!(listed(&repo).contains(&first));
        assert_eq!(listed(&repo).lines().count(), 3);
        let repo = flawed(&unsorted);
        let mut before: Vec<String> = listed(&repo).lines().map(str::to_owned).collect();
        before.sort();
        assert_eq!(repair(&repo, "order"), [""; 0]);
        assert_eq!(listed(&repo).lines().collect::<Vec<_>>(), before);
        assert_eq!(before.len(), 4);
    }
}

/// Of the table a part is lost, so that reflogs tell what refs were; but not against what can be read.
#[test]
fn no_stray_entry_of_a_reflog_changes_a_ref_that_is_whole() {
    for format in FORMATS {
        let stray = Says {
            logs: &[
                ("refs/heads/a", 1, 1),
                ("refs/heads/main", 77, 5),
                ("refs/heads/main", 1, 0),
            ],
            ..FIRST
        };
        let lost = Says {
            indices: (2, 2),
            refs: &[("refs/heads/z", Some(6))],
            logs: &[],
        };
        let writer = Repo::init(format);
        let mut cut = lost.table(&writer);
        let names = cut.len() / 2;
        cut[28..names].fill(b'x');
        let tables = [
            ((1, 1), cut),
            (
                (2, 2),
                Says {
                    indices: (2, 2),
                    ..stray
                }
                .table(&writer),
            ),
        ];
        let repo = repo(format, &tables);
        let notes = repair(&repo, "stray");
        let main = repo.git(["rev-parse", "refs/heads/main"]).run().text();
        assert_eq!(main.trim(), repo.objects().commits[0], "{notes:?}");
        assert!(
            notes
                .iter()
                .any(|it| it.contains("above those of the table")),
            "{notes:?}"
        );
        assert!(
            notes.iter().any(|it| it.contains("could not be read")),
            "{notes:?}"
        );
    }
}

/// Git reads nothing of it, refdb all.
#[test]
fn a_block_size_less_than_the_first_block_is_told_and_mended() {
    for format in FORMATS {
        for size in [1_u8, 64] {
            let whole = of(format, &[FIRST]);
            let mut table = FIRST.table(&whole);
            let footer = table.len() - if table[4] == 1 { 68 } else { 72 };
            for at in [0, footer] {
                table[at + 5..at + 8].copy_from_slice(&[0, 0, size]);
            }
            let repo = repo(format, &[((1, 1), forge::with_indices(table, 1, 1))]);
            assert_eq!(listed(&repo), "", "{size}");
            let told = check(&repo);
            assert!(
                told[0].what.contains("longer than the block size"),
                "{told:?}"
            );
            assert_eq!(repair(&repo, "block size"), [""; 0]);
            assert_eq!(listed(&repo), listed(&whole), "{size}");
        }
    }
}

#[test]
fn a_name_whose_first_update_index_is_above_its_last_is_mended_at_once() {
    for format in FORMATS {
        let writer = Repo::init(format);
        let says = Says {
            indices: (5, 5),
            logs: &[],
            ..FIRST
        };
        let table = forge::with_indices(says.table(&writer), 5, 2);
        let repo = repo(format, &[((5, 2), table)]);
        assert_eq!(stays(&repo, "5..2"), [""; 0]);
    }
}

#[test]
fn a_name_whose_first_update_index_is_above_its_last_takes_no_entry_of_a_reflog() {
    let first = Says {
        logs: &[("refs/heads/a", 5, 1), ("refs/heads/main", 5, 0)],
        ..FIRST
    };
    let second = |index| Says {
        indices: (index, index),
        logs: &[],
        ..SECOND
    };
    for format in FORMATS {
        for next in [3, 8] {
            let writer = Repo::init(format);
            let tables = [
                ((5, 2), forge::with_indices(first.table(&writer), 5, 2)),
                ((next, next), second(next).table(&writer)),
            ];
            let repo = repo(format, &tables);
            let before = repo.reflogs();
            assert_eq!(before.len(), 2, "{before:?}");
            stays(&repo, "5..2, and entries");
            assert_eq!(repo.reflogs(), before, "{next}");
        }
    }
}

/// The order of such tables is that of the list, of which only the beginning is left.
#[test]
fn what_followed_tables_in_another_order_is_not_lost_with_the_end_of_their_list() {
    let says = |index, refs| Says {
        indices: (index, index),
        refs,
        logs: &[],
    };
    let third = [("refs/heads/c", Some(4))];
    let fourth = [("refs/heads/c", Some(5)), ("refs/heads/d", Some(6))];
    for format in FORMATS {
        let tables = [
            says(9, FIRST.refs),
            says(4, SECOND.refs),
            says(5, &third[..]),
            says(6, &fourth[..]),
        ];
        let repo = of(format, &tables);
        let before = listed(&repo);
        assert_eq!(before.lines().count(), 5);
        let path = stack(&repo).join("tables.list");
        let list = fs::read_to_string(&path).expect("a list");
        let cut: String = list.lines().take(2).flat_map(|line| [line, "\n"]).collect();
        fs::write(&path, cut + "0x0").expect("it can be written");
        repair(&repo, "cut");
        assert_eq!(listed(&repo), before);
    }
}

#[test]
fn an_update_index_that_no_number_holds_takes_no_ref_along() {
    for format in FORMATS {
        let writer = Repo::init(format);
        let says = Says {
            indices: (0, u64::MAX),
            logs: &[],
            ..FIRST
        };
        let mut table = says.table_with(&writer, |name| match name {
            "refs/heads/b" => u64::MAX,
            _ => 0,
        });
        table = forge::with_indices(table, 2, 2);
        let repo = repo(format, &[((2, 2), table)]);
        assert_eq!(stays(&repo, "overflow"), [""; 0]);
        assert_eq!(listed(&repo).lines().count(), 4);
    }
}

/// As Git leaves them, which counts on from the last index of the last table: what is written behind such a one has lower
/// indices, and whole tables may have them as well.
#[test]
fn of_two_tables_the_later_one_of_the_list_counts_whatever_their_indices_are() {
    let with = |indices, refs| Says {
        indices,
        refs,
        logs: &[],
    };
    let (first, second) = (FIRST.refs, SECOND.refs);
    let c = [("refs/heads/c", Some(4))];
    for format in FORMATS {
        for indices in [
            [(5, 1), (2, 2), (3, 3)],
            [(1000, 3), (4, 4), (5, 5)],
            [(7, 3), (8, 8), (4, 4)],
            [(9, 9), (4, 4), (6, 6)],
        ] {
            let writer = Repo::init(format);
            let refs = [first, second, &c[..]];
            let tables = indices.iter().zip(refs).map(|(&(min, max), refs)| {
                let table = with((min, max.max(min)), refs).table(&writer);
                ((min, max), forge::with_indices(table, min, max))
            });
            let repo = repo(format, &tables.collect::<Vec<_>>());
            let what = format!("{format}: {indices:?}");
            assert_eq!(stays(&repo, &what), [""; 0], "{what}");
            let again = ours::open_damaged(&repo.git_dir());
            let again = plan(&again, Options::default()).expect("a plan");
            assert!(again.is_empty(), "{what}");
        }
    }
}

/// A part is lost, so that reflogs tell what refs were; but not by indices that say nothing of what came first.
#[test]
fn of_tables_in_another_order_no_reflog_tells_what_is_newer() {
    for format in FORMATS {
        let writer = Repo::init(format);
        let mut cut = SECOND.table(&writer);
        let names = cut.len() / 2;
        cut[28..names].fill(b'x');
        let older = Says {
            indices: (6, 6),
            logs: &[("refs/heads/main", 6, 0)],
            ..FIRST
        };
        let newer = Says {
            indices: (4, 4),
            refs: &[("refs/heads/main", Some(1))],
            logs: &[],
        };
        let tables = [older, newer].map(|it| (it.indices, it.table(&writer)));
        let [older, newer] = tables;
        let repo = repo(format, &[((2, 2), cut), older, newer]);
        repair(&repo, "another order");
        let main = repo.git(["rev-parse", "refs/heads/main"]).run().text();
        assert_eq!(main.trim(), repo.objects().commits[1]);
    }
}

/// There is no index for what a repair writes: it changes nothing rather than write it below all others.
#[test]
fn no_repair_writes_below_the_last_update_index_that_there_is() {
    for format in FORMATS {
        let says = Says {
            indices: (u64::MAX, u64::MAX),
            refs: &[("refs/heads/main", Some(0))],
            logs: &[],
        };
        let repo = of(format, &[says]);
        let before = listed(&repo);
        assert_ne!(check(&repo), []);
        let repository = ours::open_damaged(&repo.git_dir());
        let refused = plan(&repository, Options::default()).expect_err("no index is left");
        assert!(refused.to_string().contains("leave none"), "{refused}");
        assert_eq!(listed(&repo), before);
    }
}

/// Such a table is the oldest one by its header, and a newer one deletes and changes what it says: nothing comes back,
/// whether the two have an update index in common or not.
#[test]
fn a_table_whose_name_makes_no_sense_stands_where_its_header_says() {
    for format in FORMATS {
        for newer in [(2, 3), (3, 3)] {
            let writer = Repo::init(format);
            let older = Says {
                indices: (1, 2),
                refs: &[
                    ("HEAD", None),
                    ("refs/heads/gone", Some(0)),
                    ("refs/heads/main", Some(0)),
                ],
                logs: &[],
            };
            let newer = Says {
                indices: newer,
                refs: &[("refs/heads/gone", None), ("refs/heads/main", Some(1))],
                logs: &[],
            };
            let tables = [
                ((4, 1), older.table(&writer)),
                (newer.indices, newer.table(&writer)),
            ];
            let repo = repo(format, &tables);
            stays(&repo, "4..1");
        }
    }
}

/// The last line of the list counts, as for Git, though its table says less.
#[test]
fn tables_with_update_indices_in_common_take_those_between_them_along() {
    let says = |indices, commit| Says {
        indices,
        refs: commit,
        logs: &[],
    };
    let first = |at| [("HEAD", None), ("refs/heads/main", Some(at))];
    let (zero, one, two) = (first(0), first(1), first(2));
    for format in FORMATS {
        for indices in [[(1, 1), (2, 3), (1, 1)], [(1, 1), (2, 2), (1, 4)]] {
            let [a, b, c] = indices;
            let repo = of(
                format,
                &[says(a, &zero[..]), says(b, &one[..]), says(c, &two[..])],
            );
            stays(&repo, "between");
        }
    }
}

/// The footer places no log blocks, though there are some: whoever writes all refs again must not lose them.
#[test]
fn reflogs_that_a_footer_hides_outlive_a_change_of_all_refs() {
    for format in FORMATS {
        let names: Vec<String> = (0..6000).map(|at| format!("refs/tags/b{at:05}")).collect();
        let first = [("HEAD", None), ("refs/heads/main", Some(0))];
        let tags = names.iter().map(|name| (name.as_str(), Some(1)));
        let refs: Vec<_> = first.into_iter().chain(tags).collect();
        let says = Says {
            refs: &refs,
            logs: &[("refs/heads/main", 1, 0)],
            ..FIRST
        };
        let mut table = says.table(&Repo::init(format));
        let end = table.len() - 4;
        table[end - 16..end].fill(0);
        let repo = repo(format, &[((1, 1), forge::with_indices(table, 1, 1))]);
        repo.config("core.logAllRefUpdates", "false");
        let repository = ours::open(&repo.git_dir());
        let mut transaction = repository.store().transaction();
        let value = ObjectId::from_hex(repo.objects().commits[2].as_bytes()).expect("an id");
        for name in &names {
            let name = RefName::new(name.as_bytes()).expect("a name");
            transaction.add(Edit::update(name, value)).expect("an edit");
        }
        let outcome = transaction.commit().expect("it can be written");
        assert_eq!(outcome.rejections, []);
        repair(&repo, "hidden");
        let logs = repo.reflogs();
        assert!(logs.contains_key(b"refs/heads/main".as_bstr()), "{logs:?}");
        let shown = repo.git(["rev-parse", &names[5999]]).run().text();
        assert_eq!(shown.trim(), repo.objects().commits[2]);
    }
}
