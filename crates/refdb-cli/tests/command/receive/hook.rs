//! What installing the hook changes, and what taking it away leaves: the configuration, and who may use what is made.

use std::os::unix::fs::PermissionsExt;

use refdb_testkit::Format;
use refdb_testkit::format::{ObjectFormat, RefFormat};
use refdb_testkit::oracle;
use refdb_testkit::repo::Repo;

use super::{REFDB, Scene, refdb, said};

#[test]
fn a_configuration_that_is_a_link_stays_one() {
    let scene = Scene::new(ObjectFormat::Sha1, 1);
    let host = scene.host();
    refdb(host, &["serve-hook", "uninstall"]).ok();
    let (path, real) = (
        host.git_dir().join("config"),
        scene.temp.path().join("real"),
    );
    std::fs::rename(&path, &real).expect("it moves");
    std::os::unix::fs::symlink(&real, &path).expect("a link");
    let set = || std::fs::read_to_string(&real).expect("a file");
    let before = set();
    refdb(host, &["serve-hook", "install"]).ok();
    assert!(path.is_symlink());
    assert_eq!(
        set(),
        format!("{before}[receive]\n\tprocreceiverefs = refs\n")
    );
    // The lock is beside the file, where Git takes it.
    let lock = scene.temp.path().join("real.lock");
    std::fs::write(&lock, "").expect("a lock");
    let refused = refdb(host, &["serve-hook", "uninstall"]);
    assert!(
        said(&refused).contains("somebody changes the configuration"),
        "{}",
        said(&refused)
    );
    std::fs::remove_file(&lock).expect("it goes");
    refdb(host, &["serve-hook", "uninstall"]).ok();
    assert!(path.is_symlink());
    assert_eq!(set(), before);
}

#[test]
fn what_others_set_beside_the_hook_stays() {
    let scene = Scene::new(ObjectFormat::Sha1, 1);
    let host = scene.host();
    host.git([
        "config",
        "set",
        "--append",
        "receive.procReceiveRefs",
        "refs/for",
    ])
    .run()
    .ok();
    let told = refdb(host, &["serve-hook", "uninstall"]);
    assert_eq!(told.code(), 0, "{}", said(&told));
    let left = host.git(["config", "get", "--all", "receive.procReceiveRefs"]);
    assert_eq!(left.run().text().trim(), "refs/for");
}

/// Git writes there with the rights of the group, whoever follows.
#[test]
fn what_is_made_is_shared_as_the_repository_is() {
    let scene = Scene::new(ObjectFormat::Sha1, 0);
    let host = Repo::init_bare(Format::new(RefFormat::Reftable, ObjectFormat::Sha1));
    let url = format!("file://{}", scene.store().display());
    host.config("refdb.store", &url);
    host.config("core.sharedRepository", "group");
    let alternates = host.git_dir().join("objects/info/alternates");
    let objects = scene.pusher.git_dir().join("objects");
    std::fs::write(alternates, format!("{}\n", objects.display())).expect("a file");
    let call = |args: &str| {
        let call = format!("umask 077; exec '{REFDB}' {args}");
        let output = oracle::run_of("sh", host.path()).args(["-c", &call]).run();
        assert_eq!(output.code(), 0, "{args}: {}", said(&output));
    };
    call("serve-hook install");
    let tables = host.git_dir().join("reftable");
    std::fs::remove_file(tables.join("tables.list.lock")).expect("the lock");
    host.git([
        "update-ref",
        "refs/heads/mine",
        &scene.pusher.objects().commits[0],
    ])
    .run()
    .ok();
    call("sync --set-aside");
    let aside = host.git_dir().join("refdb-aside");
    let mut kept = std::fs::read_dir(&aside).expect("a folder");
    let kept = kept.next().expect("one").expect("one").path();
    let listed = std::fs::read_to_string(tables.join("tables.list")).expect("a list");
    let mut paths = vec![aside, kept.join("tables.list"), kept];
    paths.extend(listed.lines().map(|name| tables.join(name)));
    paths.extend(["tables.list", "tables.list.lock"].map(|name| tables.join(name)));
    let others = ["refdb-followed", "hooks", "hooks/proc-receive"];
    paths.extend(others.map(|name| host.git_dir().join(name)));
    for path in paths {
        let mode = std::fs::metadata(&path).expect("it is there").permissions();
        let own = mode.mode() & 0o700;
        assert_eq!(
            mode.mode() & 0o070,
            own >> 3,
            "{} {:o}",
            path.display(),
            mode.mode()
        );
    }
}
