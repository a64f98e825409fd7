//! `refdb watch`: what changed in the refs, here or in a store that many machines share, and what changes from
//! now on.

use std::time::Duration;

use refdb::{Error, ErrorKind, Target};
use refdb_maintenance::shared::{Changed, Changes, LocalChanges, Moment, changes};
use serde_json::json;

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::options::{Opt, Spec};
use crate::output::Output;

/// How often is looked.
const EVERY: Duration = Duration::from_secs(1);

/// How long at most passes until a signal is noticed.
const STEP: Duration = Duration::from_millis(100);

#[derive(Clone, Copy)]
pub(super) enum Id {
    Since,
    Json,
    Follow,
}

pub(super) const SPEC: Spec<Id> = Spec {
    name: "watch",
    forms: &["[--since=<moment>] [--follow] [--json]"],
    options: &[
        Opt::text(
            Id::Since,
            "since",
            "moment",
            "what changed since a moment that a call has told",
        ),
        Opt::flag(Id::Follow, "follow", "go on until it is stopped"),
        Opt::flag(Id::Json, "json", "print one object for each line"),
    ],
};

/// Runs `watch`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (mut since, mut json, mut follow) = (None, false, false);
    let operands = SPEC.parse(args, |id, value| {
        match id {
            Id::Since => since = value.into_text(),
            Id::Json => json = value.is_set(),
            Id::Follow => follow = value.is_set(),
        }
        Ok(())
    })?;
    if !operands.is_empty() {
        return Err(SPEC.misuse());
    }
    let mut since: Option<Moment> = match since {
        Some(text) => {
            let moment = String::from_utf8_lossy(&text).parse();
            Some(moment.map_err(|error: Error| Failure::error(error.to_string(), 129))?)
        }
        None => None,
    };
    let repository = context.repository()?;
    let mut local = match repository.register() {
        Some(_) => None,
        None => Some(LocalChanges::open(repository)?),
    };
    let mut look = |since| match (&mut local, repository.register()) {
        (Some(local), _) => local.changes(since),
        (None, Some(register)) => changes(register, since),
        (None, None) => Err(Error::new(ErrorKind::Misuse, "there are no refs to watch")),
    };
    loop {
        let found = look(since)?;
        let place = |moment: Moment| (moment.uuid, moment.index);
        // Whoever only moves records makes a commit as well.
        if found.is_all || since.map(place) != Some(place(found.until)) {
            put(out, &found, json)?;
            out.flush()?;
        }
        since = Some(found.until);
        if !follow {
            return Ok(());
        }
        let mut waited = Duration::ZERO;
        while waited < EVERY {
            if interrupt::came() {
                return Ok(());
            }
            std::thread::sleep(STEP);
            waited += STEP;
        }
    }
}

/// Prints changes, and the moment from which to go on.
fn put(out: &mut Output, found: &Changes, json: bool) -> Result<()> {
    if found.is_all {
        out.put(match json {
            true => format!("{}\n", json!({ "event": "resync" })),
            false => "resync\n".to_owned(),
        })?;
    }
    for changed in &found.changes {
        out.put(match json {
            true => format!("{}\n", as_json(changed)).into_bytes(),
            false => as_line(changed),
        })?;
    }
    out.put(match json {
        true => format!(
            "{}\n",
            json!({ "event": "until", "moment": found.until.to_string() })
        ),
        false => format!("until {}\n", found.until),
    })
}

fn as_json(changed: &Changed) -> serde_json::Value {
    let value = changed.target.as_ref().map(|target| match target {
        Target::Direct(oid) => oid.to_string(),
        Target::Symbolic(target) => format!("ref:{target}"),
    });
    json!({
        "event": "ref",
        "index": changed.index,
        "name": changed.name.to_string(),
        "value": value,
    })
}

/// Names are printed as they are, which need not be text.
fn as_line(changed: &Changed) -> Vec<u8> {
    let mut line = format!("{} ", changed.index).into_bytes();
    match &changed.target {
        None => line.extend_from_slice(b"deleted"),
        Some(Target::Direct(oid)) => oid.push_hex(&mut line),
        Some(Target::Symbolic(target)) => {
            line.extend_from_slice(b"ref:");
            line.extend_from_slice(target.as_bytes());
        }
    }
    line.push(b' ');
    line.extend_from_slice(changed.name.as_bytes());
    line.push(b'\n');
    line
}
