//! Lists the branches of a repository in either format, and makes one: `branches REPOSITORY [NEW-BRANCH]`

refdb_git2::wrap!();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("branches REPOSITORY [NEW-BRANCH]")?;
    // SAFETY: from here on, libgit2 opens repositories whose refs are tables.
    unsafe { git2::opts::set_extensions(&["refstorage"])? };
    let repository = git2::Repository::open(path)?;
    if let Some(name) = arguments.next() {
        let head = repository.head()?.peel_to_commit()?;
        repository.branch(&name, &head, false)?;
    }
    for branch in repository.branches(Some(git2::BranchType::Local))? {
        let reference = branch?.0.into_reference();
        let target = reference.resolve()?.target().ok_or("a symref")?;
        println!("{target} {}", String::from_utf8_lossy(reference.name_bytes()));
    }
    Ok(())
}
