//! `%(signature)` beside Git, with programs that answer as gpg and ssh-keygen do: which one answers
//! what depends on a word in the signature.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use refdb_testkit::answer::Answer;
use refdb_testkit::format::ObjectFormat;
use refdb_testkit::repo::Repo;
use refdb_testkit::{for_every_format, oracle};

/// Answers as gpg does. What is signed has to arrive without its signature.
const GPG: &str = r#"#!/bin/sh
for file; do test -f "$file" && break; done
echo "called with $# arguments: $1" >&2
if grep -q gpgsig -; then echo "[GNUPG:] BADSIG 1 a signature is part of what is signed"; exit 1; fi
case $(cat "$file") in
*good*) echo "[GNUPG:] NEWSIG"
    echo "[GNUPG:] GOODSIG AB12 A U Thor <a@example.org>"
    echo "[GNUPG:] VALIDSIG F1 2023-01-01 3 4 5 6 7 8 9 P1"
    echo "[GNUPG:] TRUST_ULTIMATE 0 pgp" ;;
*untrusted*) echo "[GNUPG:] GOODSIG AB12 someone"; echo "[GNUPG:] TRUST_UNDEFINED 0" ;;
*bad*) echo "[GNUPG:] BADSIG AB12 someone"; exit 1 ;;
*error*) echo "[GNUPG:] ERRSIG AB12 1 2 3 4 9"; exit 2 ;;
*expired*) echo "[GNUPG:] EXPKEYSIG AB12 someone"; echo "[GNUPG:] VALIDSIG F1 2 3" ;;
*revoked*) echo "[GNUPG:] REVKEYSIG AB12 someone"; exit 1 ;;
*old*) echo "[GNUPG:] EXPSIG AB12 someone"; exit 1 ;;
*twice*) echo "[GNUPG:] GOODSIG 1 a"; echo "[GNUPG:] GOODSIG 2 b" ;;
*strange*) echo "[GNUPG:] GOODSIG 1 a"; echo "[GNUPG:] TRUST_ME 2 b" ;;
*) exit 1 ;;
esac
"#;

/// Answers as ssh-keygen does.
const SSH: &str = r#"#!/bin/sh
case "$*" in
*find-principals*) case "$*" in *-Overify-time=2023111*) ;; *) exit 3 ;; esac
    test -s allowed && cat allowed || { echo "no principal" >&2; exit 1; } ;;
*check-novalidate*) cat >/dev/null; echo 'Good "git" signature with RSA key SHA256:abc' ;;
*verify*first*) cat >/dev/null; echo "not that one" >&2; exit 255 ;;
*verify*) cat >/dev/null; echo 'Good "git" signature for me with me with RSA key SHA256:abc' ;;
esac
"#;

const PARTS: &str = "--format=%(refname)|%(signature)|%(signature:grade)|%(signature:signer)|\
    %(signature:key)|%(signature:fingerprint)|%(signature:primarykeyfingerprint)|\
    %(signature:trustlevel)|%(*signature:grade)";

fn program(repo: &Repo, name: &str, text: &str) -> String {
    let path = repo.path().join(name);
    fs::write(&path, text).expect("the folder can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    format!("./{name}")
}

fn sign(repo: &Repo, name: &str, signature: &str) {
    let key = match repo.format().objects {
        ObjectFormat::Sha1 => "gpgsig",
        ObjectFormat::Sha256 => "gpgsig-sha256",
    };
    let tree = &repo.objects().tree;
    let signature = signature.replace('\n', "\n ");
    let commit = format!(
        "tree {tree}\nauthor a <a> 1700000000 +0000\ncommitter a <a> 1700000000 +0000\n\
         {key} {signature}\n\nsubject\n"
    );
    let write = [
        "hash-object",
        "-w",
        "-t",
        "commit",
        "--stdin",
        "--literally",
    ];
    let id = repo.git(write).stdin(commit).run().text();
    repo.update_refs(format!("create refs/heads/{name} {id}\n"));
}

#[track_caller]
fn compare(repo: &Repo, args: &[&str]) {
    let ours = Path::new(env!("CARGO_BIN_EXE_refdb"));
    let [git, ours] =
        [oracle::program(), ours].map(|program| Answer::of(program, args, b"", repo, "."));
    assert!(git == ours, "{args:?}\n{}", git.difference(&ours));
}

for_every_format! {
    fn signatures_are_told_as_git_tells_them(format) {
        let repo = Repo::init(format);
        for word in [
            "good", "untrusted", "bad", "error", "expired", "revoked", "old", "twice", "strange",
            "nothing",
        ] {
            let signature =
                format!("-----BEGIN PGP SIGNATURE-----\n\n{word}\n-----END PGP SIGNATURE-----");
            sign(&repo, word, &signature);
        }
        sign(&repo, "x509", "-----BEGIN SIGNED MESSAGE-----\ngood\n-----END SIGNED MESSAGE-----");
        sign(&repo, "ssh", "-----BEGIN SSH SIGNATURE-----\nx\n-----END SSH SIGNATURE-----");
        sign(&repo, "unknown", "-----BEGIN NONSENSE-----");
        let commit = &repo.objects().commits[1];
        let (tag, blob) = (&repo.objects().tags[1].id, &repo.objects().blob);
        repo.update_refs(format!(
            "create refs/heads/plain {commit}\ncreate refs/tags/tag {tag}\n\
             create refs/tags/blob {blob}\n"
        ));
        compare(&repo, &["for-each-ref", PARTS, "refs/heads/ssh"]);
        repo.config("gpg.openpgp.program", "./none");
        compare(&repo, &["for-each-ref", PARTS, "refs/heads/good"]);
        repo.config("gpg.openpgp.program", "refdb-has-no-such-program");
        compare(&repo, &["for-each-ref", PARTS, "refs/heads/good"]);
        repo.git(["config", "--unset", "gpg.openpgp.program"]).run().ok();
        repo.config("gpg.program", &program(&repo, "fake-gpg", GPG));
        repo.config("gpg.x509.program", &program(&repo, "fake-gpgsm", GPG));
        repo.config("gpg.ssh.program", &program(&repo, "fake-ssh", SSH));
        let allowed = repo.path().join("allowed");
        fs::write(&allowed, "").expect("the folder can be written");
        repo.config("gpg.ssh.allowedSignersFile", allowed.to_str().expect("text"));
        compare(&repo, &["for-each-ref", PARTS, "refs/heads/unknown"]);
        repo.update_refs("delete refs/heads/unknown\n");
        compare(&repo, &["for-each-ref", PARTS]);
        fs::write(&allowed, "first\nme\n").expect("the folder can be written");
        compare(&repo, &["for-each-ref", PARTS, "refs/heads/ssh"]);
        repo.config("gpg.ssh.revocationFile", "/nonexistent");
        compare(&repo, &["for-each-ref", PARTS, "refs/heads/ssh"]);
        compare(&repo, &["for-each-ref", "--format=%(refname)", "--sort=signature:grade"]);
        compare(&repo, &["for-each-ref", "--format=%(signature:none)"]);
        compare(&repo, &["for-each-ref", "--format=%(signature:)", "refs/heads/good"]);
    }
}
