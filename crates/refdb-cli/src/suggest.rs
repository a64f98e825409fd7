//! What a mistyped word was probably meant to be.

use refdb::RefFormat;

/// Returns the word of `words` that is nearest to `typed`, if one is near enough.
pub(crate) fn nearest(typed: &str, words: impl IntoIterator<Item = String>) -> Option<String> {
    let limit = typed.chars().count().div_ceil(3).max(1);
    words
        .into_iter()
        .map(|word| (distance(typed, &word), word))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Returns which formats of refs there are, and which of them was probably meant.
pub(crate) fn format(typed: &[u8]) -> String {
    let known = [RefFormat::Files, RefFormat::Reftable].map(RefFormat::name);
    let typed = String::from_utf8_lossy(typed);
    match nearest(&typed, known.map(str::to_owned)) {
        Some(nearest) => format!("did you mean {nearest}? There are {}", known.join(" and ")),
        None => format!("there are the formats {}", known.join(" and ")),
    }
}

/// Counts the letters that have to be inserted, deleted, replaced or swapped with a neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let replace = rows[i][j] + usize::from(from != to);
            let mut best = replace.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let words = ["stdin", "create-reflog"].map(str::to_owned);
        assert_eq!(nearest("sdtin", words.clone()).unwrap(), "stdin");
        assert_eq!(
            nearest("creat-relfog", words.clone()).unwrap(),
            "create-reflog"
        );
        assert_eq!(nearest("quiet", words), None);
    }
}
