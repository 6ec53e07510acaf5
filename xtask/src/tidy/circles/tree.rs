//! The modules of a crate, the names in each, and what each file uses of others, read from the syntax trees.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;
use syn::{Attribute, Ident, Item, ItemUse, UseTree, Visibility};

/// A path such as `crate::queue::Queue`, in words.
pub(super) type Words = Vec<String>;

/// All modules of a crate; the first is its root.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) modules: Vec<Module>,
    pub(super) mentions: Vec<Mention>,
    /// The names that a module re-exports (`pub use`).
    pub(super) passed_on: BTreeSet<(usize, String)>,
}

/// A module: a file of its own, or part of one.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) parent: Option<usize>,
    pub(super) file: String,
    pub(super) names: BTreeMap<String, Vec<Name>>,
    pub(super) globs: Vec<Words>,
}

/// What a name in a module refers to; it may refer to several things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Name {
    /// Something that is defined in the module.
    Item,
    /// A module below this one.
    Module(usize),
    /// Whatever this path refers to.
    Import(Words),
}

/// A place at which a file mentions a name.
#[derive(Debug)]
pub(super) struct Mention {
    pub(super) module: usize,
    pub(super) words: Words,
    /// The line, from 1.
    pub(super) line: usize,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// `use`, for the file itself.
    Import,
    /// `use …::*`, for the file itself.
    Glob,
    /// A path, in code or in the arguments of a macro.
    Path,
}

impl Tree {
    /// Reads the crate with this root file. `read` returns the text of a file.
    pub(super) fn of(root: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut tree = Self::default();
        tree.file(None, root, folder_of(root), read)?;
        Ok(tree)
    }

    /// Adds the module in this file; the modules that it declares are below `folder`.
    fn file(
        &mut self,
        parent: Option<usize>,
        path: &str,
        folder: &str,
        read: &dyn Fn(&str) -> Option<String>,
    ) -> Result<usize, String> {
        let text = read(path).ok_or_else(|| format!("{path} is not there"))?;
        let syntax = syn::parse_file(&text).map_err(|error| format!("{path} cannot be read: {error}"))?;
        let module = self.add(parent, path);
        self.items(module, &syntax.items, folder, read)?;
        Ok(module)
    }

    fn add(&mut self, parent: Option<usize>, file: &str) -> usize {
        let (file, names, globs) = (file.to_owned(), BTreeMap::new(), Vec::new());
        self.modules.push(Module { parent, file, names, globs });
        self.modules.len() - 1
    }

    fn items(
        &mut self,
        module: usize,
        items: &[Item],
        folder: &str,
        read: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), String> {
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            if let Item::Mod(declared) = item {
                let name = declared.ident.to_string();
                let below = format!("{folder}/{name}");
                let child = if let Some((_, items)) = &declared.content {
                    let file = self.modules.get(module).map(|module| module.file.clone()).unwrap_or_default();
                    let child = self.add(Some(module), &file);
                    self.items(child, items, &below, read)?;
                    child
                } else {
                    let elsewhere =
                        elsewhere(&declared.attrs).map(|path| normal(&format!("{folder}/{path}")));
                    let mut places =
                        elsewhere.into_iter().chain([format!("{below}.rs"), format!("{below}/mod.rs")]);
                    let file = places.find(|path| read(path).is_some());
                    let file = file.ok_or_else(|| format!("the module {below} has no file"))?;
                    let below = if file.ends_with("/mod.rs") { folder_of(&file).to_owned() } else { below };
                    self.file(Some(module), &file, &below, read)?
                };
                self.define(module, &declared.ident, Name::Module(child));
            } else {
                if let Some(ident) = defined(item) {
                    self.define(module, ident, Name::Item);
                }
                let mut collector = Collector { tree: self, module, top: true };
                collector.visit_item(item);
            }
        }
        Ok(())
    }

    fn define(&mut self, module: usize, ident: &Ident, name: Name) {
        if let Some(module) = self.modules.get_mut(module) {
            module.names.entry(ident.to_string()).or_default().push(name);
        }
    }
}

/// Returns `a/b` for `a/b/c.rs`.
fn folder_of(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns the path without its `..` parts.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// Returns what `#[path = "…"]` says.
fn elsewhere(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let value = &attribute.meta.require_name_value().ok()?.value;
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Returns whether the item is compiled only for tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defined(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        _ => None,
    }
}

/// Collects what an item mentions.
struct Collector<'t> {
    tree: &'t mut Tree,
    module: usize,
    /// Whether a `use` here belongs to the module; others are inside a function.
    top: bool,
}

impl Collector<'_> {
    fn mention(&mut self, words: Words, line: usize, kind: Kind) {
        self.tree.mentions.push(Mention { module: self.module, words, line, kind });
    }

    fn import(&mut self, tree: &UseTree, before: &[String], passes_on: bool) {
        let then = |ident: &Ident| {
            let mut words = before.to_vec();
            // `a::{self}` is `a`.
            if ident != "self" || before.is_empty() {
                words.push(ident.to_string());
            }
            words
        };
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &then(&path.ident), passes_on),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before, passes_on);
                }
            }
            UseTree::Name(name) => self.leaf(then(&name.ident), None, line_of(&name.ident), passes_on),
            UseTree::Rename(name) => {
                self.leaf(then(&name.ident), Some(&name.rename), line_of(&name.ident), passes_on);
            }
            UseTree::Glob(glob) => {
                if self.top
                    && let Some(module) = self.tree.modules.get_mut(self.module)
                {
                    module.globs.push(before.to_vec());
                }
                if !passes_on {
                    self.mention(before.to_vec(), glob.star_token.span.start().line, Kind::Glob);
                }
            }
        }
    }

    fn leaf(&mut self, words: Words, alias: Option<&Ident>, line: usize, passes_on: bool) {
        let name = alias.map(ToString::to_string).or_else(|| words.last().cloned()).unwrap_or_default();
        if self.top
            && let Some(module) = self.tree.modules.get_mut(self.module)
        {
            module.names.entry(name.clone()).or_default().push(Name::Import(words.clone()));
        }
        if passes_on {
            self.tree.passed_on.insert((self.module, name));
        } else {
            self.mention(words, line, Kind::Import);
        }
    }

    /// Collects the paths in a macro's arguments, which are not parsed: words with `::` between them.
    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let (mut words, mut line, mut joins) = (Words::new(), 0, 0);
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Ident(ident) => {
                    if joins != 2 {
                        self.path(std::mem::take(&mut words), line);
                        line = line_of(&ident);
                    }
                    words.push(ident.to_string());
                    joins = 0;
                }
                proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ':' && !words.is_empty() => {
                    joins += 1;
                }
                other => {
                    self.path(std::mem::take(&mut words), line);
                    joins = 0;
                    if let proc_macro2::TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.path(words, line);
    }

    fn path(&mut self, words: Words, line: usize) {
        if !words.is_empty() {
            self.mention(words, line, Kind::Path);
        }
    }
}

fn line_of(ident: &Ident) -> usize {
    ident.span().start().line
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let top = std::mem::replace(&mut self.top, false);
        syn::visit::visit_block(self, block);
        self.top = top;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let passes_on = !matches!(item.vis, Visibility::Inherited);
        if item.leading_colon.is_none() {
            self.import(&item.tree, &[], passes_on);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let words = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.path(words, line_of(&first.ident));
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    /// Attributes and `pub(in …)` import nothing.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}
