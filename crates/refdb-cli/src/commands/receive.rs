//! `refdb receive`: what Git calls as its hook `proc-receive`, so that a push goes to the store.
//!
//! Invariants:
//! 1. Whatever comes from a client is hostile: lengths are bounded, a name is checked before anything is done
//!    with it, and no path is made from one.
//! 2. A ref is told to be done only when it is committed in the store. The copy here is switched before that
//!    is told, so that who fetches next finds it.
//! 3. What was pushed can be had by other hosts before anybody can see a ref that names it.

mod rules;
mod wire;

use std::io::Read;
use std::time::{Duration, Instant};

use refdb::{ErrorKind, ObjectId, RefFormat, RefNameBuf};
use refdb_git::Repository;
use refdb_git::repository::{Ending, Programs};
use refdb_maintenance::shared::{Committer, Fate, Push, Wanted};

use self::rules::Rules;
use self::wire::Wire;
use super::follow;
use crate::context::Context;
use crate::failure::{Failure, Result, say, say_error};
use crate::options::{Opt, Spec};
use crate::output::Output;
use crate::programs::Processes;

const NO_OPTIONS: &[Opt<()>] = &[];

pub(super) const SPEC: Spec<()> = Spec {
    name: "receive",
    forms: &[""],
    options: NO_OPTIONS,
};

/// How long the copy is waited for, while somebody else switches it.
const SWITCH_MAX: Duration = Duration::from_secs(10);

/// The reason that Git gives for the rest of an atomic push.
const ATOMIC: &str = "atomic push failure";

/// One command of a push.
struct Asked {
    /// The ref, as the client names it.
    name: Vec<u8>,
    old: ObjectId,
    new: ObjectId,
    /// What becomes of it, as soon as that is known.
    fate: Option<Fate>,
}

/// Runs `receive`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    if !SPEC.parse(args, |(), _| Ok(()))?.is_empty() {
        return Err(SPEC.misuse());
    }
    let repository = context.repository()?;
    if repository.register().is_none() || repository.ref_format() != RefFormat::Reftable {
        return Err(Failure::fatal(
            "pushes are taken in a repository that follows a store: refdb serve-hook install",
        ));
    }
    let mut wire = Wire::new(std::io::stdin().lock());
    let is_atomic = greet(&mut wire, out)?;
    let mut asked = Vec::new();
    while let Some(line) = wire.line()? {
        asked.push(command(&line, repository.object_format().hex_len())?);
    }
    serve(repository, &mut asked, is_atomic)?;
    for one in &asked {
        answer(out, one)?;
    }
    out.put(wire::FLUSH)
}

/// Agrees on a version; returns whether all commands are to be carried out, or none.
fn greet(wire: &mut Wire<impl Read>, out: &mut Output) -> Result<bool> {
    let mut is_atomic = false;
    let mut is_known = false;
    while let Some(line) = wire.line()? {
        let mut parts = line.splitn(2, |byte| *byte == 0);
        is_known |= parts.next() == Some(b"version=1");
        let features = parts.next().unwrap_or_default();
        is_atomic |= features
            .split(|byte| *byte == b' ')
            .any(|it| it == b"atomic");
    }
    if !is_known {
        return Err(Failure::fatal(
            "proc-receive speaks another version of its protocol",
        ));
    }
    // Push options are not asked for: Git gives them to the hooks that may look at them.
    out.put(wire::packet(b"version=1\0atomic"))?;
    out.put(wire::FLUSH)?;
    out.flush()?;
    Ok(is_atomic)
}

/// Reads `<old> <new> <ref>`.
fn command(line: &[u8], hex_len: usize) -> Result<Asked> {
    let parse = || {
        let (old, rest) = line.split_at_checked(hex_len)?;
        let (new, rest) = rest.strip_prefix(b" ")?.split_at_checked(hex_len)?;
        Some(Asked {
            name: rest.strip_prefix(b" ")?.to_vec(),
            old: ObjectId::from_hex(old)?,
            new: ObjectId::from_hex(new)?,
            fate: None,
        })
    };
    parse().ok_or_else(|| Failure::fatal("a command of the push is malformed"))
}

/// Tells what became of a command.
fn answer(out: &mut Output, asked: &Asked) -> Result<()> {
    let mut line = match &asked.fate {
        Some(Fate::Done) => [b"ok ", asked.name.as_slice()].concat(),
        Some(Fate::Refused { reason, .. }) => {
            [b"ng ", asked.name.as_slice(), b" ", reason.as_bytes()].concat()
        }
        None => [b"ng ", asked.name.as_slice(), b" not carried out"].concat(),
    };
    line.retain(|byte| *byte != b'\n');
    line.truncate(wire::LINE_MAX);
    out.put(wire::packet(&line))
}

/// Carries the commands out, as far as nothing speaks against it.
fn serve(repository: &Repository, asked: &mut [Asked], is_atomic: bool) -> Result<()> {
    let rules = Rules::of(repository)?;
    for one in asked.iter_mut() {
        one.fate = rules.refusal(one)?.map(Fate::refused);
        if is_atomic && one.fate.is_some() {
            break;
        }
    }
    if is_atomic && asked.iter().any(|one| one.fate.is_some()) {
        refuse_rest(asked, ATOMIC);
        return Ok(());
    }
    if !publish(repository, asked)? {
        say("error", b"refdb.publishObjects failed: nothing was changed");
        refuse_rest(asked, "objects cannot be had by other hosts");
        return Ok(());
    }
    let mut left: Vec<&mut Asked> = asked.iter_mut().filter(|it| it.fate.is_none()).collect();
    if left.is_empty() {
        return Ok(());
    }
    let mut refs = Vec::with_capacity(left.len());
    for one in &left {
        refs.push(Wanted {
            name: RefNameBuf::lax(rules.full_name(&one.name))?,
            old: one.old,
            new: one.new,
        });
    }
    let push = Push {
        refs,
        atomic: is_atomic,
        who: None,
    };
    let Some(committer) = Committer::open(repository)? else {
        return Ok(());
    };
    let fates = committer.commit(push, &mut || switch(repository));
    for (one, fate) in left.iter_mut().zip(fates) {
        if let Fate::Refused {
            message: Some(message),
            ..
        } = &fate
        {
            say("error", message.as_bytes());
        }
        one.fate = Some(fate);
    }
    Ok(())
}

fn refuse_rest(asked: &mut [Asked], reason: &str) {
    for one in asked.iter_mut().filter(|one| one.fate.is_none()) {
        one.fate = Some(Fate::refused(reason));
    }
}

/// Has the new objects made reachable for other hosts; returns whether they are.
fn publish(repository: &Repository, asked: &[Asked]) -> Result<bool> {
    let Some(program) = follow::program(repository, "refdb.publishobjects")? else {
        return Ok(true);
    };
    let mut input = Vec::new();
    let is_new = |one: &&Asked| one.fate.is_none() && !one.new.is_null();
    for one in asked.iter().filter(is_new) {
        one.new.push_hex(&mut input);
        input.extend_from_slice(&[b" ", one.name.as_slice(), b"\n"].concat());
    }
    Ok(input.is_empty() || Processes.run(&program, &input) == Ending::Well)
}

/// Switches the copy here. What is committed stays so: where that fails, it is told and done later.
fn switch(repository: &Repository) {
    let since = Instant::now();
    loop {
        let error = match follow::bring_up_to_date(repository) {
            Ok(()) => return,
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Locked || since.elapsed() > SWITCH_MAX {
            let what = "it is pushed, and the copy here shows it later";
            return say_error("warning", &error.context(what));
        }
        let system = repository.system();
        system.sleep(Duration::from_micros(1000 + system.random() % 4000));
    }
}
