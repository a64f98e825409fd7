//! A person removes locks, or what is written beside them, of a transaction that is committed and not finished.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::tests::{DIR, at, repository};
use super::*;
use crate::options::{Options, SharedRepository, Warn};
use crate::system::{FileId, FileKind};
use refdb_names::ObjectFormat;
use refdb_simulation::{Fault, SimSystem};

const OPTIONS: LockOptions = LockOptions::AT_ONCE;

fn create(system: &SimSystem, name: &str, content: &[u8]) {
    let mut file = system.create_new(&at(name), 0o666).unwrap();
    file.write_all(content).unwrap();
}

fn place(name: &str) -> Place {
    match name {
        "packed-refs" => Place::Packed,
        _ => Place::read(b"ref", name.as_bytes()).unwrap(),
    }
}

/// A transaction that puts new content into a file and removes `HEAD`, and that is committed.
struct Moves {
    system: Arc<dyn System>,
    new: LockFile,
    old: LockFile,
    change: Change,
    journal: journal::Journal,
}

impl Moves {
    fn commit(process: &SimSystem, name: &str) -> Moves {
        let system: Arc<dyn System> = Arc::new(process.clone());
        let home = Home::new(&system, Path::new(DIR), &Options::new(ObjectFormat::Sha1));
        let holder = Holder::new(&home);
        let mut new = LockFile::acquire(&holder, &at(name), OPTIONS).unwrap();
        let before = system.lstat(&at(name)).ok();
        if name == "ORIG_HEAD" && before.is_none() {
            new.bar(None).unwrap();
        }
        // That of packed-refs is no name of the file of the others.
        let old = match name {
            "packed-refs" => LockFile::acquire(&holder, &at("HEAD"), OPTIONS).unwrap(),
            _ => LockFile::acquire_linked(&holder, &at("HEAD"), OPTIONS, &new).unwrap(),
        };
        match name {
            // As packed-refs is written, of which a part is counted.
            "packed-refs" => {
                new.made_from(before.map(|stat| FileId::of(&stat)));
                new.create().unwrap().write_all(b"new").unwrap();
                let mut part = Part::default();
                part.add(b"n");
                part.differs();
                part.add(b"ew");
                new.written = Some(Content::Part(part));
            }
            _ => new.write_all(b"new").unwrap(),
        }
        let mut change = Change::default();
        let guards = [name, "HEAD"].map(|name| change.lock(place(name)));
        change.put(guards[0], place(name), &new);
        let place = place("HEAD");
        change.add(guards[1], Step::Remove { place });
        let journal = change.commit(&means(&system, &new)).unwrap();
        Moves {
            system,
            new,
            old,
            change,
            journal,
        }
    }

    fn means(&self) -> Means<'_> {
        means(&self.system, &self.new)
    }

    /// Returns its two locks, with the new content between them.
    fn files(&self) -> [PathBuf; 3] {
        let new = self.new.path().to_owned();
        [new, self.new.value_path(), self.old.path().to_owned()]
    }

    /// Leaves it all to whoever comes when the process has ended; returns its files.
    fn leave(self) -> [PathBuf; 3] {
        let files = self.files();
        self.journal.leave();
        self.new.leave();
        self.old.leave();
        files
    }
}

/// What it takes to make a change visible, one of whose locks is `lock`.
fn means<'m>(system: &Arc<dyn System>, lock: &'m LockFile) -> Means<'m> {
    Means {
        holder: lock.holder(),
        lock: Some(lock),
        packed: Some(lock).filter(|lock| lock.target().ends_with("packed-refs")),
        options: OPTIONS,
        fsync: true,
        roots: Roots::new(system, Path::new(DIR), &at("packed-refs")),
        dirs: BTreeSet::new(),
        clear: &|_| Ok(()),
    }
}

/// Finishes what is left, and returns what is told of it.
fn recover(system: &SimSystem) -> Vec<String> {
    recover_as(system, Says::Nothing)
}

fn recover_as(system: &SimSystem, says: Says) -> Vec<String> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut options = Options::new(ObjectFormat::Sha1);
    let into = Arc::clone(&told);
    let tell = move |warning: &Error| into.lock().unwrap().push(warning.to_string());
    options.warn = Some(Warn(Arc::new(tell)));
    let shared: Arc<dyn System> = Arc::new(system.clone());
    journal::finish_left(&Home::new(&shared, Path::new(DIR), &options), says).unwrap();
    std::mem::take(&mut *told.lock().unwrap())
}

/// Returns whether the new file and the old one are there.
fn found(system: &SimSystem, name: &str) -> (bool, bool) {
    let is_new = system
        .read(&at(name))
        .is_ok_and(|content| &content[..] == b"new");
    (is_new, system.lstat(&at("HEAD")).is_ok())
}

/// Returns what a reader sees of them who knows what a journal says.
fn seen(system: &SimSystem, view: Option<&view::View>, name: &str) -> (bool, bool) {
    let becomes = |name| view.and_then(|view| view.of_place(&place(name)).unwrap());
    let (is_new, is_old) = found(system, name);
    let is_new = match becomes(name) {
        Some(Becomes::Content(path)) => {
            system.read(&path).is_ok_and(|it| &it[..] == b"new") || is_new
        }
        _ => is_new,
    };
    (is_new, is_old && becomes("HEAD") != Some(Becomes::Nothing))
}

/// Every way to remove some of three files, for each file that the content can be of, which may be there
/// already, before and after the content got its name.
fn each(check: impl Fn(&SimSystem, &str, u8, &str)) {
    for name in ["ORIG_HEAD", "packed-refs"] {
        for is_there in [false, true] {
            for removed in 0..8 {
                let system = repository();
                create(&system, "HEAD", b"old");
                if is_there {
                    create(&system, name, b"older");
                }
                system.sleep(Duration::from_secs(1));
                check(
                    &system,
                    name,
                    removed,
                    &format!("{name}, {is_there}, {removed:03b}"),
                );
            }
        }
    }
}

fn remove(system: &SimSystem, files: &[PathBuf], which: u8) {
    for (bit, file) in files.iter().enumerate() {
        if which & 1 << bit != 0 {
            system.remove_file(file).unwrap();
        }
    }
}

#[test]
fn nothing_goes_whose_replacement_was_taken_from_the_dead() {
    each(|system, name, removed, context| {
        let dies = system.process(7);
        let files = Moves::commit(&dies, name).leave();
        remove(system, &files, removed);
        let is_given = removed & 0b011 == 0;
        // Who reads meanwhile sees what will be there.
        let view = journal::recover(&tests::home(system))
            .unwrap()
            .view
            .expect("a journal");
        let goes = view.of_place(&place("HEAD")).unwrap() == Some(Becomes::Nothing);
        assert_eq!(goes, removed == 0, "{context}");
        dies.end();
        let told = recover(system);
        let is_old = removed != 0;
        assert_eq!(found(system, name), (is_given, is_old), "{context}");
        assert_eq!(told.len(), usize::from(removed != 0), "{context}: {told:?}");
        // One more time changes nothing.
        assert_eq!(recover(system), Vec::<String>::new());
        assert_eq!(found(system, name), (is_given, is_old), "{context}");
    });
}

#[test]
fn what_the_dead_had_put_in_place_is_known_again() {
    each(|system, name, removed, context| {
        let dies = system.process(7);
        let files = Moves::commit(&dies, name).leave();
        system.rename(&files[1], &at(name)).unwrap();
        let removed = removed & 0b101;
        remove(system, &files, removed);
        dies.end();
        let told = recover(system);
        // Only the lock of what goes is asked for then.
        let is_old = removed & 0b100 != 0;
        assert_eq!(found(system, name), (true, is_old), "{context}: {told:?}");
        assert_eq!(told.len(), usize::from(is_old), "{context}: {told:?}");
    });
}

#[test]
fn nothing_goes_whose_replacement_is_taken_while_it_is_recovered() {
    for name in ["ORIG_HEAD", "packed-refs"] {
        let system = repository();
        create(&system, "HEAD", b"old");
        let moves = Moves::commit(&system.process(7), name);
        let roots = Roots::new(&moves.system, Path::new(DIR), &at("packed-refs"));
        let how = step::How {
            shared: SharedRepository::Umask,
            transaction: moves.new.holder().owner().id,
            packed: None,
            holds: &hold::Holds::default(),
            is_live: false,
            is_first: false,
            gives_up: step::GivesUp::Nothing,
            is_journalled: true,
            sync_each: false,
            fsync: false,
            clear: None,
        };
        // It was whole when that was looked at; then somebody removed the first lock.
        let is_own = |guard: &Place| Ok(*guard == place("HEAD"));
        let mut taken = step::Taken::default();
        let done = moves
            .change
            .take_own(&roots, how, &mut taken, false, &is_own);
        assert_eq!(found(&system, name), (false, true), "{name}");
        // Whoever looks again tells it.
        assert_eq!(done.unwrap_err().kind(), ErrorKind::Locked, "{name}");
    }
}

#[test]
fn a_journal_that_cannot_be_looked_at_is_not_taken_for_none() {
    for name in ["ORIG_HEAD", "packed-refs"] {
        let mut fails_at = 0;
        loop {
            let system = repository();
            create(&system, "HEAD", b"old");
            let dies = system.process(7);
            Moves::commit(&dies, name).leave();
            dies.end();
            // Before, it may be one of the living.
            system.sleep(Duration::from_secs(1));
            let process = system.process(8);
            process.set_fault(Some(Fault::once(fails_at, io::ErrorKind::Other)));
            let shared: Arc<dyn System> = Arc::new(process.clone());
            let home = Home::new(&shared, Path::new(DIR), &Options::new(ObjectFormat::Sha1));
            let context = format!("{name}, operation {fails_at}");
            let read = watch::JournalWatch::new(&home).for_reading();
            process.set_fault(None);
            // Whoever reads sees all of it, or is told that he cannot.
            let done = read.map(|view| seen(&system, view.as_deref(), name));
            assert!(
                done.clone().unwrap_or((true, false)) == (true, false),
                "{context}: {done:?}"
            );
            let told = recover(&system);
            assert_eq!(found(&system, name), (true, false), "{context}: {done:?}");
            assert_eq!(told, Vec::<String>::new(), "{context}: {done:?}");
            if process.op_count() <= fails_at {
                break;
            }
            fails_at += 1;
        }
        assert!(fails_at > 20, "{name}: {fails_at} operations");
    }
}

/// Copies a file, without its date.
fn copy(system: &SimSystem, path: &Path) {
    let content = system.read(path).unwrap();
    system.remove_file(path).unwrap();
    let mut copy = system.create_new(path, 0o666).unwrap();
    copy.write_all(&content).unwrap();
}

#[test]
fn what_a_copy_lacks_is_told_whatever_its_dates() {
    each(|system, name, removed, context| {
        if removed & 0b011 == 0 {
            return;
        }
        let dies = system.process(7);
        let files = Moves::commit(&dies, name).leave();
        remove(system, &files, removed);
        dies.end();
        system.sleep(Duration::from_secs(2));
        for path in [at("refdb.journal"), at("HEAD"), at(name)] {
            if system
                .find(&path)
                .unwrap()
                .is_some_and(|stat| stat.kind == FileKind::File)
            {
                copy(system, &path);
            }
        }
        let told = recover_as(system, Says::NobodyWorks);
        assert_eq!(found(system, name), (false, true), "{context}");
        assert_eq!(told.len(), 1, "{context}: {told:?}");
    });
}

/// Whatever it waits for, or has got its name already.
#[test]
fn a_copy_without_dates_is_finished() {
    each(|system, name, removed, context| {
        let dies = system.process(7);
        let files = Moves::commit(&dies, name).leave();
        let mut new = files[1].clone();
        if removed & 0b010 != 0 {
            new = at(name);
            system.rename(&files[1], &new).unwrap();
        }
        remove(system, &files, removed & 0b100);
        system.sleep(Duration::from_secs(2));
        copy(system, &new);
        dies.end();
        let told = recover(system);
        // Only the lock of what goes was taken away.
        let is_old = removed & 0b100 != 0;
        assert_eq!(found(system, name), (true, is_old), "{context}: {told:?}");
        assert_eq!(told.len(), usize::from(is_old), "{context}: {told:?}");
    });
}

/// Neither how long it is nor its date tells it from the new content.
#[test]
fn what_another_put_in_place_is_not_taken_for_new_content() {
    each(|system, name, removed, context| {
        let dies = system.process(7);
        let files = Moves::commit(&dies, name).leave();
        system.remove_file(&files[1]).unwrap();
        remove(system, &files, removed & 0b100);
        let _ = system.remove_file(&at(name));
        create(system, name, b"not");
        dies.end();
        recover(system);
        assert_eq!(found(system, name), (false, true), "{context}");
        assert_eq!(&system.read(&at(name)).unwrap()[..], b"not", "{context}");
    });
}

#[test]
fn nothing_goes_whose_replacement_was_taken_from_the_living() {
    each(|system, name, removed, context| {
        let lives = system.process(7);
        let moves = Moves::commit(&lives, name);
        // Between the journal and the first step.
        remove(system, &moves.files(), removed);
        let taken = moves.change.take_after(&moves.means());
        // As it would be recovered.
        assert_eq!(taken.is_ok(), removed == 0, "{context}");
        let (is_given, is_old) = (removed & 0b011 == 0, removed != 0);
        assert_eq!(found(system, name), (is_given, is_old), "{context}");
    });
}

#[test]
fn what_is_written_under_a_lock_that_was_taken_from_the_living_stays() {
    each(|system, name, removed, context| {
        let moves = Moves::commit(&system.process(7), name);
        let removed = removed & 0b101;
        remove(system, &moves.files(), removed);
        for (bit, name) in [(0b001, name), (0b100, "HEAD")] {
            if removed & bit != 0 {
                let _ = system.remove_file(&at(name));
                create(system, name, b"another");
            }
        }
        let taken = moves.change.take_after(&moves.means());
        assert_eq!(taken.is_ok(), removed == 0, "{context}");
        let check = || {
            for (bit, name) in [(0b001, name), (0b100, "HEAD")] {
                let found = system.read(&at(name));
                let is_kept = found.is_ok_and(|it| &it[..] == b"another");
                assert_eq!(is_kept, removed & bit != 0, "{context}: {name}");
            }
        };
        check();
        // Nobody has to wait until the process ends to see that settled.
        if removed != 0 {
            moves.leave();
            recover(system);
            assert!(system.lstat(&at("refdb.journal")).is_err(), "{context}");
            check();
        }
    });
}

#[test]
fn nothing_goes_whose_replacement_no_journal_names() {
    let system = repository();
    let stat = system.stat(Path::new(DIR)).unwrap();
    let text = owner::Owner::new(&system, owner::Purpose::Transaction).text();
    let mut change = Change::default();
    let guards = ["packed-refs", "HEAD"].map(|name| change.lock(place(name)));
    let put = Step::Put {
        place: Place::Packed,
        content: None,
        from: step::Source::Beside,
    };
    change.add(guards[0], put);
    let place = place("HEAD");
    change.add(guards[1], Step::Remove { place });
    for (is_named, count) in [(true, 2), (false, 0)] {
        let named = |it: &Place| is_named || *it != Place::Packed;
        let journal = change.encode(&text, &stat, &stat, &named).unwrap();
        let content = bytes::Bytes::from([&*text, &*journal].concat());
        let read = encoding::decode(&content, None);
        assert_eq!(read.ok().map(|(_, it)| it.steps.len()), Some(count));
    }
}

/// What is not whole, and nobody may remove, is waited for, and no longer than that.
#[test]
fn a_journal_that_nobody_finishes_is_waited_for_in_vain() {
    let system = repository();
    let shared: Arc<dyn System> = Arc::new(system.process(8));
    let mut options = Options::new(ObjectFormat::Sha1);
    options.recovers = false;
    let home = Home::new(&shared, Path::new(DIR), &options);
    create(&system, "refdb.journal", b"");
    let lock = LockFile::acquire(&Holder::new(&home), &at("HEAD"), OPTIONS).unwrap();
    let mut change = Change::default();
    for name in ["HEAD", "ORIG_HEAD"] {
        let guard = change.lock(place("HEAD"));
        let place = place(name);
        change.add(guard, Step::Remove { place });
    }
    let done = change.commit(&means(&shared, &lock));
    assert_eq!(done.err().map(|it| it.kind()), Some(ErrorKind::Locked));
}

#[test]
fn whoever_waits_for_the_journal_of_the_dead_finishes_it() {
    let system = repository();
    create(&system, "HEAD", b"old");
    let shared: Arc<dyn System> = Arc::new(system.process(8));
    let home = Home::new(&shared, Path::new(DIR), &Options::new(ObjectFormat::Sha1));
    let holder = Holder::new(&home);
    let names = ["MERGE_HEAD", "REVERT_HEAD"];
    let one = LockFile::acquire(&holder, &at(names[0]), OPTIONS).unwrap();
    let other = LockFile::acquire_linked(&holder, &at(names[1]), OPTIONS, &one).unwrap();
    let mut change = Change::default();
    for (name, mut lock) in names.into_iter().zip([one, other]) {
        lock.write_all(name.as_bytes()).unwrap();
        let guard = change.lock(place(name));
        change.put(guard, place(name), &lock);
        lock.leave();
    }
    let dies = system.process(7);
    let moves = Moves::commit(&dies, "packed-refs");
    let lock = LockFile::acquire(&holder, &at("BISECT_HEAD"), OPTIONS).unwrap();
    let means = means(&shared, &lock);
    assert!(
        change.commit(&means).is_err(),
        "it may be one of the living"
    );
    moves.leave();
    dies.end();
    change.commit(&means).unwrap().leave();
    assert_eq!(found(&system, "packed-refs"), (true, false));
}

/// Whoever writes packed-refs between the journal and the first step had a lock that was taken away, or took this one.
#[test]
fn what_another_put_in_place_meanwhile_stays() {
    each(|system, name, removed, context| {
        if name != "packed-refs" || removed != 0 {
            return;
        }
        let moves = Moves::commit(&system.process(7), name);
        create(system, "another", b"another");
        system.rename(&at("another"), &at(name)).unwrap();
        assert!(
            moves.change.take_after(&moves.means()).is_err(),
            "{context}"
        );
        assert_eq!(
            &system.read(&at(name)).unwrap()[..],
            b"another",
            "{context}"
        );
        assert!(system.lstat(&at("HEAD")).is_ok(), "{context}");
    });
}
