//! What a repair keeps of a stack: its tables, and what they say.

use std::fs;
use std::os::unix::fs::symlink;

use bstr::ByteSlice;
use refdb_testkit::repo::Repo;

use super::{REFTABLE, comes_back, list_of_tables, listed, refdb, repair, repo, stack};

fn write_list(repo: &Repo, list: &str) {
    fs::write(stack(repo).join("tables.list"), list).expect("it can be written");
}

/// As compaction leaves it when the power fails before its result has any byte.
#[test]
fn a_table_that_says_nothing_stands_before_no_other() {
    for format in REFTABLE {
        for damage in ["empty", "doubled", "cut", "odd name"] {
            let repo = repo(format);
            let before = listed(&repo);
            let mut tables = list_of_tables(&repo);
            let last = tables.last().expect("tables").clone();
            let max = last.split('-').nth(1).expect("an index");
            let wide = format!("0x000000000001-{max}-deadbeef.ref");
            fs::write(stack(&repo).join(wide), "").expect("it can be written");
            if damage == "odd name" {
                fs::rename(stack(&repo).join(&last), stack(&repo).join("odd.ref")).expect("there");
                *tables.last_mut().expect("tables") = "odd.ref".to_owned();
            }
            let lines = tables.join("\n");
            let list = match damage {
                "empty" => String::new(),
                "cut" => lines,
                _ => format!("{lines}\n{}\n", tables.last().expect("tables")),
            };
            write_list(&repo, &list);
            comes_back(&repo, &before, damage);
        }
    }
}

#[test]
fn a_list_that_lost_its_end_is_told_from_a_writer_that_died() {
    for format in REFTABLE {
        for lines in [0, 1, 2] {
            let repo = repo(format);
            let before = listed(&repo);
            let tables = list_of_tables(&repo);
            let list: String = tables[..lines]
                .iter()
                .map(|name| format!("{name}\n"))
                .collect();
            write_list(&repo, if lines == 0 { "\n" } else { &list });
            let found = refdb(&repo, &["refs", "verify", "--deep"]);
            assert_eq!(found.code(), 2, "{lines} lines: {found:?}");
            comes_back(&repo, &before, &format!("{lines} lines"));
        }
        // One table may be what a writer left that died.
        let repo = repo(format);
        let tables = list_of_tables(&repo);
        write_list(&repo, &(tables[..tables.len() - 1].join("\n") + "\n"));
        let found = refdb(&repo, &["refs", "verify", "--deep"]);
        assert_eq!(found.code(), 1, "{found:?}");
    }
}

#[test]
fn a_head_of_tables_that_leads_out_is_mended() {
    for format in REFTABLE {
        let repo = repo(format);
        repo.git(["symbolic-ref", "HEAD", "refs/heads/b2"])
            .run()
            .ok();
        let newest = list_of_tables(&repo).last().expect("a table").clone();
        let path = stack(&repo).join(newest);
        let bytes = fs::read(&path).expect("a table");
        fs::write(&path, bytes.replace("refs/heads/b2", "rffs/heads/b2"))
            .expect("it can be written");
        let found = refdb(&repo, &["refs", "verify", "--deep"]);
        assert_eq!(found.code(), 2, "{found:?}");
        // Git's HEAD of a repository with tables may be a link that leads nowhere.
        let head = repo.git_dir().join("HEAD");
        fs::remove_file(&head).expect("there");
        symlink("refs/heads/.invalid", &head).expect("a link");
        let repaired = repair(&repo);
        // No entry of its reflog says which branch it was.
        let shown = repo.git(["rev-parse", "HEAD"]).run().text();
        assert_eq!(shown.trim(), repo.objects().commits[2], "{repaired:?}");
    }
}

/// Spoils the checksum of a table, whose blocks are whole.
fn spoil(repo: &Repo, name: &str) {
    let path = stack(repo).join(name);
    let mut bytes = fs::read(&path).expect("a table");
    *bytes.last_mut().expect("a table") ^= 1;
    fs::write(&path, bytes).expect("it can be written");
}

/// Takes the last line feed of the list away: a repair makes the list anew.
fn cut_list(repo: &Repo, bytes: usize) {
    let list = fs::read(stack(repo).join("tables.list")).expect("a list");
    let left = &list[..list.len() - bytes];
    fs::write(stack(repo).join("tables.list"), left).expect("it can be written");
}

/// Compaction may have come back, or not have come to its end, after a power failure.
#[test]
fn what_compaction_leaves_stands_before_no_table_that_is_listed() {
    for format in REFTABLE {
        // A table that was merged, and is there again.
        let one = repo(format);
        let first = list_of_tables(&one)[0].clone();
        let content = fs::read(stack(&one).join(&first)).expect("a table");
        one.git(["pack-refs", "--all"]).run().ok();
        let before = listed(&one);
        fs::write(stack(&one).join(&first), content).expect("it can be written");
        spoil(&one, &list_of_tables(&one)[0]);
        cut_list(&one, 1);
        comes_back(&one, &before, "merged");
        // A result that has no byte.
        let two = repo(format);
        let before = listed(&two);
        let tables = list_of_tables(&two);
        let ends = [&tables[2], &tables[3]].map(|name| name.split('-').collect::<Vec<_>>());
        let wide = format!("{}-{}-12345678.ref", ends[0][0], ends[1][1]);
        fs::write(stack(&two).join(wide), "").expect("it can be written");
        tables[2..4].iter().for_each(|name| spoil(&two, name));
        cut_list(&two, 1);
        comes_back(&two, &before, "no byte");
    }
}

/// What it wrote was never to be seen.
#[test]
fn the_table_of_a_writer_that_died_is_not_taken_for_one_that_was_listed() {
    for format in REFTABLE {
        for cut in [1, 3] {
            let repo = repo(format);
            let dead = repo.duplicate();
            let create = |repo: &Repo, name: &str| {
                let git = repo.git(["update-ref", name, &repo.objects().commits[9]]);
                git.env("GIT_TEST_REFTABLE_AUTOCOMPACTION", "false")
                    .run()
                    .ok();
                list_of_tables(repo).last().expect("a table").clone()
            };
            let never = create(&dead, "refs/heads/ghost");
            let last = create(&repo, "refs/heads/real");
            let before = listed(&repo);
            let (start, _) = last.rsplit_once('-').expect("a name");
            for end in ["00000000", "ffffffff"] {
                let name = format!("{start}-{end}.ref");
                fs::copy(stack(&dead).join(&never), stack(&repo).join(name)).expect("a copy");
            }
            if cut == 1 {
                spoil(&repo, &last);
            }
            cut_list(&repo, cut);
            comes_back(&repo, &before, &format!("cut by {cut}"));
        }
    }
}

#[test]
fn what_came_after_a_list_was_cut_is_not_written_over() {
    for format in REFTABLE {
        let repo = repo(format);
        let tables = list_of_tables(&repo);
        write_list(&repo, &(tables[..2].join("\n") + "\n"));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let commit = &repo.objects().commits[9];
        let git = repo.git(["update-ref", "refs/heads/b3", commit]);
        git.env("GIT_TEST_REFTABLE_AUTOCOMPACTION", "false")
            .run()
            .ok();
        let repaired = repair(&repo);
        assert_eq!(repaired.code(), 2, "{repaired:?}");
        let shown = repo.git(["rev-parse", "refs/heads/b3"]).run().text();
        assert_eq!(shown.trim(), commit, "{repaired:?}");
        // They are there for a person to look at.
        assert!(stack(&repo).join(&tables[4]).exists(), "{repaired:?}");
    }
}

#[test]
fn each_ref_that_is_lost_is_told() {
    for format in REFTABLE {
        let repo = repo(format);
        repo.config("core.logAllRefUpdates", "false");
        let ones = "1".repeat(repo.objects().commits[0].len());
        for name in ["refs/tags/t1", "refs/tags/t2"] {
            let git = repo.git(["update-ref", name, &repo.objects().commits[11]]);
            git.env("GIT_TEST_REFTABLE_AUTOCOMPACTION", "false")
                .run()
                .ok();
        }
        let tables = list_of_tables(&repo);
        let path = stack(&repo).join(&tables[tables.len() - 2]);
        let id = hex(&repo.objects().commits[11]);
        let bytes = fs::read(&path).expect("a table");
        fs::write(&path, bytes.replace(&id, hex(&ones))).expect("it can be written");
        spoil(&repo, tables.last().expect("a table"));
        let repaired = repair(&repo);
        let is_told = repaired.stdout.contains_str("refs/tags/t1");
        assert!(
            is_told && repaired.stderr.contains_str("lost: 1"),
            "{repaired:?}"
        );
    }
}

fn hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    let digits = pairs.map(|pair| std::str::from_utf8(pair).expect("digits"));
    digits
        .map(|pair| u8::from_str_radix(pair, 16).expect("digits"))
        .collect()
}

/// So a store begins again that lost all its tables.
#[test]
fn a_list_of_one_line_feed_beside_no_table_is_no_loss() {
    for format in REFTABLE {
        let repo = repo(format);
        for entry in fs::read_dir(stack(&repo)).expect("a folder") {
            fs::remove_file(entry.expect("an entry").path()).expect("there");
        }
        write_list(&repo, "\n");
        let found = refdb(&repo, &["refs", "verify", "--deep"]);
        let said = found.stdout.as_bstr();
        assert!(
            said.contains_str("HEAD is missing") && !said.contains_str("gone"),
            "{said}"
        );
        refdb(&repo, &["symbolic-ref", "HEAD", "refs/heads/main"]).ok();
        let found = refdb(&repo, &["refs", "verify", "--deep"]);
        assert_eq!(found.code(), 0, "{found:?}");
    }
}

/// Of its last line one byte is wrong, or all behind its first line is cut off, whatever was written last.
#[test]
fn a_list_that_does_not_name_its_last_tables_loses_none() {
    for format in REFTABLE {
        for damage in ["a byte", "cut"] {
            let repo = repo(format);
            let before = listed(&repo);
            let tables = list_of_tables(&repo);
            let (last, rest) = tables.split_last().expect("tables");
            match damage {
                "a byte" => write_list(&repo, &format!("{}\np{}\n", rest.join("\n"), &last[1..])),
                _ => {
                    let first = stack(&repo).join(&tables[0]);
                    let content = fs::read(&first).expect("a table");
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    fs::remove_file(&first).expect("there");
                    fs::write(&first, content).expect("it can be written");
                    write_list(&repo, &tables[0][..35]);
                }
            }
            comes_back(&repo, &before, damage);
        }
    }
}

/// As a power failure may leave both.
#[test]
fn a_table_of_which_nothing_is_left_is_told_beside_an_empty_list() {
    for format in REFTABLE {
        let repo = repo(format);
        let last = list_of_tables(&repo).last().expect("a table").clone();
        fs::write(stack(&repo).join(&last), [0; 300]).expect("it can be written");
        write_list(&repo, "");
        let repaired = repair(&repo);
        assert!(
            repaired.stderr.contains_str("no block could be read"),
            "{repaired:?}"
        );
    }
}

/// Git names a table that it writes otherwise than refdb does.
#[test]
fn what_a_dead_git_did_not_finish_goes_with_a_repair_and_with_packing() {
    for format in REFTABLE {
        for args in [&["refs", "repair"][..], &["pack-refs"]] {
            let repo = repo(format);
            let before = listed(&repo);
            let name = "0x000000000009-0x000000000009-3611546e.temp.oj1GyR";
            let path = stack(&repo).join(name);
            fs::write(&path, "REFT").expect("it can be written");
            let done = refdb(&repo, args);
            assert_eq!(done.code(), 0, "{args:?}: {done:?}");
            assert!(!path.exists(), "{args:?}");
            assert_eq!(listed(&repo), before, "{args:?}");
        }
    }
}
