//! The public items of the libraries, as `docs/public-items.txt` lists them: what is added, and what goes,
//! is seen in a diff. `REFDB_WRITE=1` writes the list anew.
//!
//! An item is listed by the paths under which others can use it; methods and fields stand under their
//! type. Implementations of traits, and what only tests can see, are not listed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use refdb_testkit::oracle::workspace_root;
use syn::{Attribute, Item, UseTree, Visibility};

/// The libraries: their folders, and their names in code.
const LIBRARIES: [(&str, &str); 6] = [
    ("crates/reftable", "reftable"),
    ("crates/refdb-names", "refdb_names"),
    ("crates/refdb-system", "refdb_system"),
    ("crates/refdb", "refdb"),
    ("crates/refdb-git", "refdb_git"),
    ("crates/refdb-maintenance", "refdb_maintenance"),
];
const LIST: &str = "docs/public-items.txt";

#[test]
fn public_items_are_those_in_the_list() {
    let mut found = String::new();
    for (folder, name) in LIBRARIES {
        let root = workspace_root().join(folder).join("src");
        let items = public_items(name, &Library::read(&root));
        found.extend(items.into_iter().map(|item| item + "\n"));
    }
    let path = workspace_root().join(LIST);
    if std::env::var_os("REFDB_WRITE").is_some() {
        fs::write(&path, &found).expect("the list can be written");
    }
    let listed = fs::read_to_string(&path).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (listed, found) = (lines(&listed), lines(&found));
    let more: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        more.is_empty() && gone.is_empty(),
        "new: {more:#?}\ngone: {gone:#?}\nIf that is meant: REFDB_WRITE=1 cargo test -p refdb-testkit \
         --test workspace public_items"
    );
}

/// A module by its path below the root.
type Module = Vec<String>;

/// The items of a library, module by module.
#[derive(Default)]
struct Library {
    modules: BTreeMap<Module, Vec<Item>>,
}

impl Library {
    fn read(src: &Path) -> Library {
        let mut library = Library::default();
        let text = fs::read_to_string(src.join("lib.rs")).expect("a library has a root");
        library.add(&Module::new(), parsed(&text), src);
        library
    }

    /// Adds a module with those in it. `folder` is where their files are.
    fn add(&mut self, module: &Module, items: Vec<Item>, folder: &Path) {
        for item in &items {
            let Item::Mod(inner) = item else { continue };
            if is_for_tests(&inner.attrs) {
                continue;
            }
            let name = inner.ident.to_string();
            let inside = folder.join(&name);
            let path = [&module[..], std::slice::from_ref(&name)].concat();
            let items = match &inner.content {
                Some((_, items)) => items.clone(),
                None => {
                    let files = [folder.join(format!("{name}.rs")), inside.join("mod.rs")];
                    let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
                    parsed(&text.unwrap_or_else(|| panic!("no file of {path:?}")))
                }
            };
            self.add(&path, items, &inside);
        }
        self.modules.insert(module.clone(), items);
    }

    fn items(&self, module: &[String]) -> &[Item] {
        self.modules.get(module).map_or(&[], Vec::as_slice)
    }

    /// Returns the methods that a type has of its own. An implementation belongs to the type of that name
    /// which is nearest to it.
    fn methods(&self, module: &Module, name: &str) -> Vec<String> {
        let homes: Vec<&Module> = self
            .modules
            .iter()
            .filter(|(_, items)| items.iter().any(|item| defines(item, name)))
            .map(|(home, _)| home)
            .collect();
        let shared = |a: &Module, b: &Module| a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let mut methods = Vec::new();
        for (at, items) in &self.modules {
            let nearest = homes
                .iter()
                .max_by_key(|home| (shared(home, at), std::cmp::Reverse(home.len())));
            if nearest != Some(&module) {
                continue;
            }
            for item in items {
                let Item::Impl(block) = item else { continue };
                let is_own = block.trait_.is_none() && !is_for_tests(&block.attrs);
                let of = match &*block.self_ty {
                    syn::Type::Path(path) => {
                        path.path.segments.last().map(|last| last.ident.to_string())
                    }
                    _ => None,
                };
                if !is_own || of.as_deref() != Some(name) {
                    continue;
                }
                for item in &block.items {
                    let (visibility, attributes, name) = match item {
                        syn::ImplItem::Fn(one) => (&one.vis, &one.attrs, &one.sig.ident),
                        syn::ImplItem::Const(one) => (&one.vis, &one.attrs, &one.ident),
                        _ => continue,
                    };
                    if is_public(visibility) && !is_for_tests(attributes) {
                        methods.push(name.to_string());
                    }
                }
            }
        }
        methods
    }
}

/// Returns the items that others can use, in the order of their paths.
fn public_items(name: &str, library: &Library) -> BTreeSet<String> {
    let mut listed = BTreeSet::new();
    list_module(library, &Module::new(), name, &mut listed);
    listed
}

fn list_module(library: &Library, module: &Module, path: &str, listed: &mut BTreeSet<String>) {
    for item in library.items(module) {
        list_item(library, module, item, path, None, listed);
    }
}

/// Lists an item below `path`, under the name `alias` if it is given another one.
fn list_item(
    library: &Library,
    module: &Module,
    item: &Item,
    path: &str,
    alias: Option<&str>,
    listed: &mut BTreeSet<String>,
) {
    let Some((kind, visibility, attributes, name)) = parts(item) else {
        return;
    };
    if !is_public(visibility) || is_for_tests(attributes) {
        return;
    }
    if let Item::Use(import) = item {
        let mut found = Vec::new();
        imports(&import.tree, &Module::new(), &mut found);
        for (target, alias) in found {
            list_import(library, module, &target, path, &alias, listed);
        }
        return;
    }
    let own = format!("{path}::{}", alias.unwrap_or(&name));
    listed.insert(format!("{own}  {kind}"));
    let mut inside = |name: &dyn std::fmt::Display, kind: &str| {
        listed.insert(format!("{own}::{name}  {kind}"));
    };
    match item {
        Item::Mod(_) => {
            let module = [&module[..], &[name]].concat();
            list_module(library, &module, &own, listed);
            return;
        }
        Item::Enum(item) => item
            .variants
            .iter()
            .for_each(|one| inside(&one.ident, "variant")),
        Item::Struct(item) => {
            let fields = item.fields.iter().filter(|field| is_public(&field.vis));
            fields
                .filter_map(|field| field.ident.as_ref())
                .for_each(|one| inside(one, "field"));
        }
        Item::Trait(item) => {
            for item in &item.items {
                if let syn::TraitItem::Fn(one) = item {
                    inside(&one.sig.ident, "fn");
                }
            }
        }
        _ => {}
    }
    for method in library.methods(module, &name) {
        listed.insert(format!("{own}::{method}  fn"));
    }
}

/// Lists what an import brings below `path`.
fn list_import(
    library: &Library,
    module: &Module,
    target: &Module,
    path: &str,
    alias: &str,
    listed: &mut BTreeSet<String>,
) {
    let mut at = match target[0].as_str() {
        "crate" => Module::new(),
        _ => module.clone(),
    };
    let mut rest = &target[..];
    while let Some(first) = rest.first() {
        match first.as_str() {
            "crate" | "self" => {}
            "super" => drop(at.pop()),
            _ => break,
        }
        rest = &rest[1..];
    }
    let (name, above) = rest.split_last().expect("an import names something");
    at.extend_from_slice(above);
    // What is named without a path, in the module itself, is another crate.
    let is_crate = above.is_empty() && at == *module && name != "*";
    if is_crate || !library.modules.contains_key(&at) {
        listed.insert(format!("{path}::{alias}  from {}", target.join("::")));
        return;
    }
    let mut items = library
        .items(&at)
        .iter()
        .filter(|item| name == "*" || is_named(item, name));
    items.by_ref().for_each(|item| {
        let alias = (name != "*").then_some(alias);
        // Of an import of an import, the one with this name.
        if let Item::Use(import) = item {
            let mut found = Vec::new();
            imports(&import.tree, &Module::new(), &mut found);
            for (target, of) in found.iter().filter(|(_, of)| name == "*" || of == name) {
                list_import(library, &at, target, path, alias.unwrap_or(of), listed);
            }
        } else {
            list_item(library, &at, item, path, alias, listed);
        }
    });
}

/// Returns what a `use` names, each with the name that it gets.
fn imports(tree: &UseTree, prefix: &Module, found: &mut Vec<(Module, String)>) {
    let with = |name: &syn::Ident| [&prefix[..], &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => imports(&path.tree, &with(&path.ident), found),
        UseTree::Name(name) => found.push((with(&name.ident), name.ident.to_string())),
        UseTree::Rename(name) => found.push((with(&name.ident), name.rename.to_string())),
        UseTree::Glob(_) => found.push(([&prefix[..], &["*".to_owned()]].concat(), "*".to_owned())),
        UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| imports(tree, prefix, found)),
    }
}

/// Returns kind, visibility, attributes and name of an item that can be public.
fn parts(item: &Item) -> Option<(&'static str, &Visibility, &[Attribute], String)> {
    let (kind, visibility, attributes, name) = match item {
        Item::Const(one) => ("const", &one.vis, &one.attrs, one.ident.to_string()),
        Item::Enum(one) => ("enum", &one.vis, &one.attrs, one.ident.to_string()),
        Item::Fn(one) => ("fn", &one.vis, &one.attrs, one.sig.ident.to_string()),
        Item::Mod(one) => ("mod", &one.vis, &one.attrs, one.ident.to_string()),
        Item::Static(one) => ("static", &one.vis, &one.attrs, one.ident.to_string()),
        Item::Struct(one) => ("struct", &one.vis, &one.attrs, one.ident.to_string()),
        Item::Trait(one) => ("trait", &one.vis, &one.attrs, one.ident.to_string()),
        Item::Type(one) => ("type", &one.vis, &one.attrs, one.ident.to_string()),
        Item::Use(one) => ("use", &one.vis, &one.attrs, String::new()),
        _ => return None,
    };
    Some((kind, visibility, attributes, name))
}

/// Tells whether an item is of this name, or an import that brings one of this name.
fn is_named(item: &Item, name: &str) -> bool {
    if let Item::Use(import) = item {
        let mut found = Vec::new();
        imports(&import.tree, &Module::new(), &mut found);
        return is_public(&import.vis) && found.iter().any(|(_, of)| of == name);
    }
    parts(item).is_some_and(|(_, _, _, of)| of == name)
}

/// Tells whether an item is a type of this name.
fn defines(item: &Item, name: &str) -> bool {
    let of = match item {
        Item::Enum(one) => &one.ident,
        Item::Struct(one) => &one.ident,
        _ => return false,
    };
    of == name
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Tells whether only tests see an item.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            list.tokens.to_string().starts_with("test")
        }
        _ => false,
    })
}

fn parsed(text: &str) -> Vec<Item> {
    syn::parse_file(text).expect("the sources are Rust").items
}

#[test]
fn what_others_can_use_is_listed_under_its_paths() {
    let root = "pub mod open; mod closed; pub use closed::{Shown, deep::Far as Near}; \
                pub(crate) fn inner() {} pub use other::thing; #[cfg(test)] pub mod tests {}";
    let closed = "pub struct Shown { pub field: u8, hidden: u8 } pub struct Unseen; \
                  impl Shown { pub fn method(&self) {} fn own(&self) {} } \
                  impl Clone for Shown { fn clone(&self) -> Shown {} }";
    let deep = "pub enum Far { One, Two }";
    let open =
        "pub trait Does { fn it(&self); } pub const ONE: u8 = 1; pub use super::closed::Shown;";
    let module = |path: &[&str]| {
        path.iter()
            .map(|part| (*part).to_owned())
            .collect::<Module>()
    };
    let modules = [
        (module(&[]), parsed(root)),
        (module(&["closed"]), parsed(closed)),
        (module(&["closed", "deep"]), parsed(deep)),
        (module(&["open"]), parsed(open)),
    ];
    let library = Library {
        modules: modules.into(),
    };
    let expected = [
        "a::Near  enum",
        "a::Near::One  variant",
        "a::Near::Two  variant",
        "a::Shown  struct",
        "a::Shown::field  field",
        "a::Shown::method  fn",
        "a::open  mod",
        "a::open::Does  trait",
        "a::open::Does::it  fn",
        "a::open::ONE  const",
        "a::open::Shown  struct",
        "a::open::Shown::field  field",
        "a::open::Shown::method  fn",
        "a::thing  from other::thing",
    ];
    assert_eq!(Vec::from_iter(public_items("a", &library)), expected);
}
