use super::*;
use refdb_system::OsSystem;

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn write(system: &dyn System, to: &str, content: &[u8], sync: bool) {
    let mut file = system.create_new(path(to), 0o666).unwrap();
    file.write_all(content).unwrap();
    if sync {
        file.sync().unwrap();
    }
}

fn lost() -> Crash {
    Crash {
        names: Names::Durable,
        content: Content::Durable,
        seed: 0,
    }
}

#[test]
fn a_file_renamed_but_not_synced_can_come_back_empty() {
    let system = SimSystem::new(1);
    write(&system, "/old", b"old", true);
    system.sync_dir(path("/")).unwrap();
    write(&system, "/new", b"new", false);
    system.rename(path("/new"), path("/old")).unwrap();
    system.sync_dir(path("/")).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        seen.insert(
            system
                .crash(Crash::seeded(seed))
                .read(path("/old"))
                .unwrap(),
        );
    }
    let expected: [&[u8]; 5] = [b"", b"\0\0\0", b"n", b"ne", b"new"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_synced_file_without_a_synced_name_can_vanish_or_leave_the_old_one() {
    let system = SimSystem::new(1);
    write(&system, "/ref", b"old", true);
    system.sync_dir(path("/")).unwrap();
    write(&system, "/ref.lock", b"new", true);
    system.rename(path("/ref.lock"), path("/ref")).unwrap();
    assert_eq!(system.pending_names(), 2);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let after = system.crash(Crash::seeded(seed));
        let lock = after.lstat(path("/ref.lock")).is_ok();
        seen.insert((after.read(path("/ref")).unwrap(), lock));
    }
    let all = [
        (b"new".to_vec(), false),
        (b"old".to_vec(), false),
        (b"old".to_vec(), true),
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn changes_survive_in_order_or_in_any_choice() {
    let system = SimSystem::new(1);
    for name in ["/a", "/b", "/c"] {
        write(&system, name, b"", true);
    }
    let names = |system: &SimSystem| {
        let entries = system.read_dir(path("/")).unwrap();
        entries
            .into_iter()
            .map(|entry| entry.name)
            .collect::<Vec<_>>()
    };
    for count in 0..4 {
        let crash = Crash {
            names: Names::First(count),
            ..lost()
        };
        assert_eq!(names(&system.crash(crash)).len(), count);
    }
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let crash = Crash {
            names: Names::Subset,
            seed,
            ..lost()
        };
        seen.insert(names(&system.crash(crash)));
    }
    assert_eq!(seen.len(), 8);
}

#[test]
fn a_directory_whose_name_is_lost_takes_its_files_with_it() {
    let system = SimSystem::new(1);
    system.create_dir(path("/d")).unwrap();
    write(&system, "/d/file", b"x", true);
    system.sync_dir(path("/d")).unwrap();
    assert!(system.crash(lost()).read(path("/d/file")).is_err());
    system.sync_dir(path("/")).unwrap();
    assert_eq!(system.crash(lost()).read(path("/d/file")).unwrap(), b"x");
}

#[test]
fn faults_hit_the_chosen_operation() {
    let system = SimSystem::new(1);
    let kind = io::ErrorKind::StorageFull;
    system.set_fault(Some(Fault::once(1, kind)));
    write(&system, "/a", b"", false);
    assert_eq!(system.create_dir(path("/d")).unwrap_err().kind(), kind);
    system.create_dir(path("/d")).unwrap();
    system.set_fault(Some(Fault::dies_at(system.op_count() + 1)));
    system.remove_dir(path("/d")).unwrap();
    assert!(system.remove_file(path("/a")).is_err());
    assert!(system.remove_file(path("/a")).is_err());
    let other = system.process(7);
    assert!(other.lstat(path("/a")).is_ok());
    assert_eq!(other.process_id(), 7);
}

#[test]
fn a_short_write_writes_a_part() {
    let system = SimSystem::new(1);
    let mut file = system.create_new(path("/a"), 0o666).unwrap();
    system.set_fault(Some(Fault {
        at: system.op_count(),
        failure: Failure::Short(2),
        persistent: false,
    }));
    assert_eq!(file.write(b"abcd").unwrap(), 2);
    assert_eq!(file.write(b"cd").unwrap(), 2);
    assert_eq!(system.read(path("/a")).unwrap(), b"abcd");
}

#[test]
fn the_trace_names_every_operation() {
    let system = SimSystem::new(1);
    system.start_trace();
    write(&system, "/a", b"x", true);
    system.lstat(path("/a")).unwrap();
    let trace = system.take_trace();
    let names: Vec<_> = trace.iter().map(|op| (op.name, op.changes)).collect();
    let expected = [
        ("create_new", true),
        ("write", true),
        ("sync", true),
        ("lstat", false),
    ];
    assert_eq!(names, expected);
    assert_eq!(system.op_count(), 4);
}

#[test]
fn a_fork_goes_its_own_way() {
    let system = SimSystem::new(1);
    write(&system, "/a", b"x", false);
    let fork = system.fork();
    fork.remove_file(path("/a")).unwrap();
    assert!(system.lstat(path("/a")).is_ok());
    assert_eq!(system.random(), fork.random());
}

#[test]
fn time_passes_with_operations_and_sleep() {
    let system = SimSystem::new(1);
    let start = system.now();
    write(&system, "/a", b"x", false);
    let written = system.stat(path("/a")).unwrap();
    assert!(system.now() > start);
    system.sleep(Duration::from_secs(5));
    assert!(system.now() - start > Duration::from_secs(5));
    write(&system, "/b", b"x", false);
    assert!(system.stat(path("/b")).unwrap().mtime_ns > written.mtime_ns + 5_000_000_000);
}

/// What a sequence of operations answers, on any system below any directory.
#[allow(clippy::too_many_lines, reason = "one operation after the other")]
fn behaviour(system: &dyn System, base: &Path) -> Vec<String> {
    let at = |text: &str| base.join(text);
    let mut answers = Vec::new();
    let mut note = |what: &str, answer: io::Result<String>| {
        let answer = answer.unwrap_or_else(|error| format!("{:?}", error.kind()));
        answers.push(format!("{what}: {answer}"));
    };
    let kind = |stat: Stat| format!("{:?} {}", stat.kind, stat.len);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    for dir in ["d", "o"] {
        system.create_dir(&at(dir)).unwrap();
    }
    let mut file = system.create_new(&at("d/f"), 0o666).unwrap();
    file.write_all(b"one").unwrap();
    note(
        "create in nothing",
        system.create_new(&at("x/y"), 0o666).map(|_| String::new()),
    );
    note(
        "create below a file",
        system
            .create_new(&at("d/f/y"), 0o666)
            .map(|_| String::new()),
    );
    note(
        "create again",
        system.create_new(&at("d/f"), 0o666).map(|_| String::new()),
    );
    note(
        "mkdir again",
        system.create_dir(&at("d")).map(|()| String::new()),
    );
    note(
        "mkdir over a file",
        system.create_dir(&at("d/f")).map(|()| String::new()),
    );
    note("read a directory", system.read(&at("d")).map(text));
    note(
        "append to a directory",
        system.append(&at("d")).map(|_| String::new()),
    );
    note(
        "append to nothing",
        system.append(&at("n")).map(|_| String::new()),
    );
    note(
        "rmdir not empty",
        system.remove_dir(&at("d")).map(|()| String::new()),
    );
    note(
        "rmdir a file",
        system.remove_dir(&at("d/f")).map(|()| String::new()),
    );
    note(
        "unlink a directory",
        system.remove_file(&at("d")).map(|()| String::new()),
    );
    note(
        "rename over a directory",
        system.rename(&at("d/f"), &at("o")).map(|()| String::new()),
    );
    note("lstat below a file", system.lstat(&at("d/f/x")).map(kind));
    note("lstat of nothing", system.lstat(&at("n")).map(kind));
    let long = "x".repeat(300);
    note(
        "too long a name",
        system.create_new(&at(&long), 0o666).map(|_| String::new()),
    );
    system.symlink(path("d/f"), &at("link")).unwrap();
    system.symlink(path("loop"), &at("loop")).unwrap();
    system.symlink(path("d"), &at("dirlink")).unwrap();
    note("lstat a link", system.lstat(&at("link")).map(kind));
    note("stat a link", system.stat(&at("link")).map(kind));
    note("read a link", system.read(&at("link")).map(text));
    note(
        "read by a linked directory",
        system.read(&at("dirlink/f")).map(text),
    );
    note("a loop of links", system.read(&at("loop")).map(text));
    note(
        "create over a link",
        system.create_new(&at("loop"), 0o666).map(|_| String::new()),
    );
    note(
        "read_link of a file",
        system.read_link(&at("d/f")).map(|_| String::new()),
    );
    system.hard_link(&at("d/f"), &at("second")).unwrap();
    system.remove_file(&at("d/f")).unwrap();
    file.write_all(b" two").unwrap();
    note("second name", system.read(&at("second")).map(text));
    note("link left over", system.stat(&at("link")).map(kind));
    note(
        "rename of nothing",
        system.rename(&at("n"), &at("m")).map(|()| String::new()),
    );
    system.create_dir(&at("e")).unwrap();
    note(
        "rename a directory",
        system.rename(&at("d"), &at("e")).map(|()| String::new()),
    );
    let mut entries = system.read_dir(base).unwrap();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    answers.extend(entries.iter().map(|entry| format!("{entry:?}")));
    answers
}

#[test]
fn the_simulated_system_answers_as_the_real_one() {
    let temp = tempfile::tempdir().unwrap();
    let real = behaviour(&OsSystem::new(), temp.path());
    let system = SimSystem::new(1);
    system.create_dir(path("/base")).unwrap();
    assert_eq!(behaviour(&system, path("/base")), real);
}

#[test]
fn directories_come_in_and_go_out() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("source");
    let system = OsSystem::new();
    system.create_dir(&source).unwrap();
    system.create_dir(&source.join("d")).unwrap();
    write(&system, source.join("d/f").to_str().unwrap(), b"x", false);
    system.symlink(path("d/f"), &source.join("link")).unwrap();
    let simulated = SimSystem::new(1);
    simulated.import(&source, path("/in/side")).unwrap();
    let after = simulated.crash(lost());
    assert_eq!(after.read(path("/in/side/link")).unwrap(), b"x");
    let target = temp.path().join("target");
    after.export(path("/in/side"), &target).unwrap();
    assert_eq!(system.read(&target.join("d/f")).unwrap(), b"x");
    assert_eq!(
        system.lstat(&target.join("link")).unwrap().kind,
        FileKind::Symlink
    );
}

/// What holds of files that a process has for itself, in `dir` of the system `here`; `there` is how
/// another process sees it.
fn guards(here: &dyn System, there: &dyn System, dir: &Path) {
    let at = |name: &str| dir.join(name);
    let mode = |name: &str| here.lstat(&at(name)).unwrap().mode;
    let is_free = |name: &str| there.guard_file(&at(name)).unwrap().is_some();
    let mut file = here.create_guarded(&at("a"), 0o666).unwrap();
    let again = here.create_guarded(&at("a"), 0o666).err().unwrap();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(mode("a") & GUARDED_MODE, GUARDED_MODE);
    assert_eq!(there.guard_owner(&at("a")), Some(here.process_id()));
    assert!(!is_free("a") && there.is_taken(&at("a")), "open");
    assert_eq!(file.stat().unwrap().nlink, 1);
    here.hard_link(&at("a"), &at("second")).unwrap();
    assert!(!is_free("second"), "by every name");
    assert_eq!(file.stat().unwrap().nlink, 2);
    here.remove_file(&at("second")).unwrap();
    file.write_all(b"x").unwrap();
    here.rename(&at("a"), &at("b")).unwrap();
    assert!(!is_free("a") && !is_free("b"), "by its new name too");
    file.reveal().unwrap();
    file.unguard().unwrap();
    here.create_new(&at("other"), 0o666).unwrap();
    assert_eq!(mode("b"), mode("other"));
    drop(file);
    assert_eq!(mode("b") & GUARDED_MODE, 0, "a file like all others");

    // Closed, as by the end of its process.
    drop(here.create_guarded(&at("a"), 0o666).unwrap());
    let guard = there.guard_file(&at("a")).unwrap().unwrap();
    assert!(!is_free("a"), "one at a time");
    drop(guard);
    assert!(is_free("a"));

    here.symlink(path("a"), &at("link")).unwrap();
    here.create_dir(&at("dir")).unwrap();
    assert!(
        ["link", "dir", "none"]
            .into_iter()
            .all(|name| !is_free(name))
    );
    let missing = here.create_guarded(&at("none/a"), 0o666).err().unwrap();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

#[test]
#[expect(clippy::print_stderr, reason = "says what cannot be tried here")]
fn a_guarded_file_is_for_one_at_a_time_here_and_there() {
    let system = SimSystem::new(1);
    system.create_dir(path("/base")).unwrap();
    guards(&system, &system.process(7), path("/base"));

    let temp = tempfile::tempdir().unwrap();
    let (far, near) = (OsSystem::new(), OsSystem::new().near(temp.path()).unwrap());
    let is_certain = [&far, near.as_ref()].map(|system: &dyn System| {
        let path = temp.path().join("x");
        let is_certain = system.create_guarded(&path, 0o666).unwrap().is_certain();
        system.remove_file(&path).unwrap();
        is_certain
    });
    assert_eq!(is_certain[0], is_certain[1]);
    match is_certain[0] {
        true => guards(near.as_ref(), &far, temp.path()),
        false => eprintln!(
            "skipped: {} is on no local file system",
            temp.path().display()
        ),
    }
}

#[test]
fn a_file_is_free_when_its_process_has_ended() {
    let system = SimSystem::new(1);
    let process = system.process(7);
    let file = process.create_guarded(path("/a"), 0o666).unwrap();
    assert!(system.guard_file(path("/a")).unwrap().is_none());
    process.end();
    let guard = system.guard_file(path("/a")).unwrap();
    assert!(guard.is_some());
    drop(file);
    assert!(
        system.guard_file(path("/a")).unwrap().is_none(),
        "not the dead one's to give"
    );
    system.sync_all();
    assert!(
        system
            .crash(lost())
            .guard_file(path("/a"))
            .unwrap()
            .is_some()
    );
}

#[test]
fn directories_of_a_lower_layer_are_not_renamed() {
    let system = SimSystem::new(1);
    system.create_dir(path("/a")).unwrap();
    write(&system, "/a/file", b"text", false);
    system.lay_over();
    system.create_dir(path("/b")).unwrap();
    let error = system.rename(path("/a"), path("/c")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::CrossesDevices);
    system.rename(path("/a/file"), path("/b/file")).unwrap();
    system.rename(path("/b"), path("/a")).unwrap();
    assert_eq!(system.read(path("/a/file")).unwrap(), b"text");
}

/// Every operation that could lead out of `/base/r`, or wherever that is.
fn nothing_leads_out(system: &dyn System, base: &Path) {
    let at = |path: &str| base.join(path);
    for dir in ["r", "r/dir", "out"] {
        system.create_dir(&at(dir)).unwrap();
    }
    let write = |path: &str| {
        let mut file = system.create_new(&at(path), 0o666).unwrap();
        file.write_all(path.as_bytes()).unwrap();
    };
    ["out/file", "r/file", "r/dir/file"]
        .into_iter()
        .for_each(write);
    system.symlink(&at("out"), &at("r/link")).unwrap();
    system.symlink(&at("out/file"), &at("r/leaf")).unwrap();
    let beneath = system.beneath(&at("r")).unwrap();
    assert_eq!(beneath.read(&at("r/dir/file")).unwrap(), b"r/dir/file");
    assert_eq!(beneath.read_dir(&at("r")).unwrap().len(), 4);
    beneath.sync_dir(&at("r")).unwrap();
    for path in ["r/link/file", "r/leaf", "r/../out/file", "out/file"] {
        let path = &at(path);
        assert!(beneath.read(path).is_err(), "{path:?}");
        assert!(beneath.open(path).is_err(), "{path:?}");
        assert!(beneath.append(path).is_err(), "{path:?}");
        assert!(beneath.set_mode(path, 0o777).is_err(), "{path:?}");
        assert!(beneath.rename(&at("r/file"), &path.join("x")).is_err());
        assert!(beneath.rename(&path.join("x"), &at("r/file")).is_err());
        assert!(beneath.guard_file(path).unwrap().is_none(), "{path:?}");
    }
    for path in ["r/link/new", "r/../new", "r/link/../new"] {
        let path = &at(path);
        assert!(beneath.create_new(path, 0o666).is_err(), "{path:?}");
        assert!(beneath.create_guarded(path, 0o666).is_err(), "{path:?}");
        assert!(beneath.create_dir(path).is_err(), "{path:?}");
        assert!(beneath.symlink(Path::new("x"), path).is_err(), "{path:?}");
        assert!(beneath.hard_link(&at("r/file"), path).is_err(), "{path:?}");
    }
    for dir in ["r/link", "r/..", "out"] {
        assert!(beneath.read_dir(&at(dir)).is_err(), "{dir}");
        assert!(beneath.sync_dir(&at(dir)).is_err(), "{dir}");
        assert!(beneath.beneath(&at(dir).join("x")).is_err(), "{dir}");
    }
    for path in ["r/link/file", "r/../out/file"] {
        assert!(beneath.remove_file(&at(path)).is_err(), "{path}");
    }
    assert_eq!(system.read(&at("out/file")).unwrap(), b"out/file");
    assert_eq!(system.read_dir(&at("out")).unwrap().len(), 1);
    // The link itself is below, and can go.
    beneath.remove_file(&at("r/leaf")).unwrap();
    beneath.rename(&at("r/dir/file"), &at("r/moved")).unwrap();
    assert_eq!(system.read(&at("r/moved")).unwrap(), b"r/dir/file");
}

#[test]
fn nothing_leads_out_here_and_there() {
    let temp = tempfile::tempdir().unwrap();
    nothing_leads_out(&OsSystem::new(), temp.path());
    let system = SimSystem::new(1);
    system.create_dir(Path::new("/base")).unwrap();
    nothing_leads_out(&system, Path::new("/base"));
}

#[test]
fn without_the_call_of_the_kernel_it_is_the_same() {
    let temp = tempfile::tempdir().unwrap();
    nothing_leads_out(&OsSystem::step_by_step(), temp.path());
}
