//! What is wrong with a tag that leads nowhere, in Git's words.

use bstr::ByteSlice;
use refdb::ObjectId;
use refdb::objects::ObjectKind;

use super::value::Item;
use crate::context::Context;
use crate::failure::{Failure, Result, say};

/// How many tags of tags are looked at.
const TAGS_MAX: usize = 4096;

/// Tells which tag it is that claims something wrong of the object it names, and returns the failure.
///
/// # Errors
/// If an object cannot be read.
pub(super) fn failure(context: &Context, item: &Item<'_>) -> Result<Failure> {
    let odb = context.odb()?;
    let mut tag = item.oid;
    for _ in 0..TAGS_MAX {
        let Some(object) = odb.read(tag)? else { break };
        let Some((target, claimed)) = claims(&object.data) else {
            break;
        };
        let claimed = claimed.as_bstr();
        let kinds = ["commit", "tree", "blob", "tag"];
        if !kinds.iter().any(|kind| claimed == *kind) {
            let text = format!("unknown tag type '{claimed}' in {tag}");
            return Ok(unparsable(&[text], tag, item));
        }
        // Where it is missing, Git says no more.
        let Some(header) = odb.header(target)? else {
            break;
        };
        let kind = header.kind.as_str();
        if claimed != kind {
            let wrong = format!("object {target} is a {kind}, not a {claimed}");
            let pointer = format!("bad tag pointer to {target} in {tag}");
            return Ok(unparsable(&[wrong, pointer], tag, item));
        }
        if header.kind != ObjectKind::Tag {
            break;
        }
        tag = target;
    }
    Ok(Failure::fatal("bad tag"))
}

/// Tells what is wrong with a tag, and returns the failure.
fn unparsable(told: &[String], tag: ObjectId, item: &Item<'_>) -> Failure {
    for text in told {
        say("error", text.as_bytes());
    }
    Failure::fatal(format!(
        "parse_object_buffer failed on {tag} for {}",
        item.name
    ))
}

/// Returns the object that a tag names, and what kind it says that is.
fn claims(data: &[u8]) -> Option<(ObjectId, &[u8])> {
    let mut lines = data.lines();
    let target = ObjectId::from_hex(lines.next()?.strip_prefix(b"object ")?)?;
    Some((target, lines.next()?.strip_prefix(b"type ")?))
}
