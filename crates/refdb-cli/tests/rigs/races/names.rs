//! The refs that the race is about. They are few and in each other's way.

/// Each of these is in the way of the others.
pub(crate) const NESTED: [&str; 3] = ["refs/heads/a", "refs/heads/a/b", "refs/heads/a/b/c"];

/// The branches that `HEAD` leads to.
pub(crate) const BRANCHES: [&str; 2] = ["refs/heads/main", "refs/heads/x"];

/// A symref to one of the nested ones.
pub(crate) const LINK: &str = "refs/heads/s";

/// One that nothing is in the way of.
pub(crate) const SPARE: &str = "refs/heads/r";

/// Each stands for many refs, `refs/heads/a/f00` and so on, which are made and deleted together:
/// so many that refdb puts them into packed-refs. It is there as long as any of them is.
pub(crate) const MANY: [&str; 2] = ["refs/heads/a/f", "refs/heads/a/b/f"];

/// How many they are.
pub(crate) const SPREAD: usize = 66;

/// Returns the refs that one of [`MANY`] stands for.
pub(crate) fn spread(name: &str) -> Option<Vec<String>> {
    let number = |number| format!("{name}{number:02}");
    MANY.contains(&name)
        .then(|| (0..SPREAD).map(number).collect())
}

/// Returns what stands for a ref: itself, or one of [`MANY`].
pub(crate) fn gather(name: &str) -> &str {
    let ends_so = |many: &&&str| {
        name.strip_prefix(**many)
            .is_some_and(|rest| rest.len() == 2)
    };
    MANY.iter().find(ends_so).copied().unwrap_or(name)
}
