//! What is too large: content, and journals.

use super::content::Content;
use super::tests::{
    acquire, at, change_of, commit_change, create, recover, repository, try_commit,
};
use super::*;

/// What is long is known by a part of it, so that whoever looks whether it is there reads little of a file that anybody
/// may have made.
#[test]
fn what_is_long_is_told_by_its_beginning() {
    let system = repository();
    let long = vec![b'a'; 4097];
    for len in [long.len() - 1, long.len()] {
        let content = long.get(..len).unwrap();
        let dies = system.process(7);
        let mut lock = acquire(&dies, "HEAD").unwrap();
        for piece in content.chunks(700) {
            lock.write_all(piece).unwrap();
        }
        let known = lock.written.unwrap();
        assert_eq!(matches!(known, Content::Part(_)), len > 4096, "{known:?}");
        let is_it = |found: &[u8]| {
            let _ = system.remove_file(&at("found"));
            create(&system, "found", found);
            known.is_at(&system, &at("found")).unwrap()
        };
        assert!(is_it(content));
        assert!(!is_it(content.get(1..).unwrap()));
        assert!(!is_it(&[b"b", content.get(1..).unwrap()].concat()));
        assert!(!is_it(&[content, b"a"].concat()));
        lock.release().unwrap();
    }
}

/// A journal that nobody would read is not written.
#[test]
fn a_transaction_that_is_too_large_for_a_journal_is_refused() {
    let system = repository();
    create(&system, "HEAD", b"zero");
    let dies = system.process(7);
    let (lock, mut change) = change_of(&dies, "HEAD");
    for _ in 0..1 << 21 {
        change.lock(Place::Outside(std::path::PathBuf::new()));
    }
    let refused = try_commit(&dies, &lock, change).err().unwrap();
    assert!(
        refused.to_string().contains("make it in several"),
        "{refused}"
    );
    lock.release().unwrap();
    assert!(recover(&system).view.is_none());
    assert!(system.lstat(&at("refdb.journal")).is_err());
    assert_eq!(system.read(&at("HEAD")).unwrap(), b"zero");
}

/// A journal that has a file read as often as it says is none of refdb's.
#[test]
fn no_place_is_put_twice() {
    let system = repository();
    let dies = system.process(7);
    let (lock, mut change) = change_of(&dies, "HEAD");
    let place = Place::read(b"ref", b"HEAD").unwrap();
    change.put(0, place, &lock);
    commit_change(&dies, &lock, change);
    lock.leave();
    dies.end();
    let told = recover(&system).error.unwrap().to_string();
    assert!(told.contains("it names something else"), "{told}");
    assert!(system.lstat(&at("HEAD")).is_err());
}
