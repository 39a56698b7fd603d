//! The lines of keys in YAML. The values come from another parser, which has no positions.

use std::collections::HashSet;

use saphyr_parser::{Event, Parser, Span, SpannedEventReceiver};

use super::form::Step;

/// The lines in an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Positions {
    node: Option<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    line: usize,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Scalar(String),
    /// The line of each key, its name and its value.
    Map(Vec<(usize, String, Node)>),
    List(Vec<Node>),
}

impl Positions {
    /// Returns the line of the key or element at the end of `path`, else of the nearest one around it.
    pub(super) fn line(&self, path: &[Step]) -> Option<usize> {
        let mut node = self.node.as_ref()?;
        let mut line = node.line;
        for step in path {
            let next = match (step, &node.content) {
                (Step::Key(key), Content::Map(entries)) => {
                    let entry = entries.iter().find(|(_, name, _)| name == key);
                    entry.map(|(line, _, value)| (*line, value))
                }
                (Step::Index(index), Content::List(elements)) => {
                    elements.get(*index).map(|element| (element.line, element))
                }
                (Step::Key(_) | Step::Index(_), _) => None,
            };
            let Some(next) = next else { break };
            (line, node) = next;
        }
        Some(line)
    }

    /// Returns the line and the name of a key that a map has twice.
    pub(super) fn duplicate(&self) -> Option<(usize, &str)> {
        self.node.as_ref()?.duplicate()
    }

    /// Returns the line in which the object begins.
    pub(super) fn first_line(&self) -> Option<usize> {
        self.node.as_ref().map(|node| node.line)
    }
}

impl Node {
    fn duplicate(&self) -> Option<(usize, &str)> {
        match &self.content {
            Content::Scalar(_) => None,
            Content::List(elements) => elements.iter().find_map(Self::duplicate),
            Content::Map(entries) => {
                let mut keys = HashSet::new();
                entries.iter().find_map(|(line, key, value)| {
                    let is_new = keys.insert(key) || key == "<<";
                    if is_new { value.duplicate() } else { Some((*line, key.as_str())) }
                })
            }
        }
    }
}

/// Returns the positions of the objects in a document that begins at `first_line`; none if they cannot be determined.
pub(super) fn of(text: &str, first_line: usize) -> Vec<Positions> {
    let mut tree = Tree { first_line, open: Vec::new(), documents: Vec::new() };
    if Parser::new_from_str(text).load(&mut tree, true).is_err() {
        return Vec::new();
    }
    let objects = tree.documents.into_iter().flat_map(objects);
    objects.map(|node| Positions { node: Some(node) }).collect()
}

/// Returns the objects of a document, as `split::values` does.
fn objects(document: Node) -> Vec<Node> {
    match document.content {
        Content::List(elements) => elements,
        Content::Scalar(text) if ["", "~", "null"].contains(&text.as_str()) => Vec::new(),
        Content::Map(ref entries) if is_list(entries) => {
            let Content::Map(entries) = document.content else { return Vec::new() };
            let items = entries.into_iter().find(|(_, key, _)| key == "items");
            match items.map(|(_, _, value)| value.content) {
                Some(Content::List(elements)) => elements,
                Some(_) | None => Vec::new(),
            }
        }
        Content::Scalar(_) | Content::Map(_) => vec![document],
    }
}

fn is_list(entries: &[(usize, String, Node)]) -> bool {
    let is_kind = |(_, key, value): &(usize, String, Node)| {
        key == "kind" && matches!(&value.content, Content::Scalar(text) if text == "List")
    };
    entries.iter().any(is_kind)
}

/// Builds nodes from events.
struct Tree {
    first_line: usize,
    /// Maps and lists that have begun, with the key whose value is read next.
    open: Vec<(Node, Option<(usize, String)>)>,
    documents: Vec<Node>,
}

impl Tree {
    fn add(&mut self, node: Node) {
        let Some((parent, key)) = self.open.last_mut() else {
            self.documents.push(node);
            return;
        };
        match &mut parent.content {
            Content::List(elements) => elements.push(node),
            Content::Map(entries) => match key.take() {
                Some((line, key)) => entries.push((line, key, node)),
                None => {
                    let name = match node.content {
                        Content::Scalar(text) => text,
                        Content::Map(_) | Content::List(_) => String::new(),
                    };
                    *key = Some((node.line, name));
                }
            },
            Content::Scalar(_) => {}
        }
    }
}

impl<'text> SpannedEventReceiver<'text> for Tree {
    fn on_event(&mut self, event: Event<'text>, span: Span) {
        let line = self.first_line + span.start.line().saturating_sub(1);
        match event {
            Event::MappingStart(..) => {
                self.open.push((Node { line, content: Content::Map(Vec::new()) }, None));
            }
            Event::SequenceStart(..) => {
                self.open.push((Node { line, content: Content::List(Vec::new()) }, None));
            }
            Event::MappingEnd | Event::SequenceEnd => {
                if let Some((node, _)) = self.open.pop() {
                    self.add(node);
                }
            }
            Event::Scalar(text, ..) => {
                self.add(Node { line, content: Content::Scalar(text.into_owned()) });
            }
            Event::Alias(_) => self.add(Node { line, content: Content::Scalar("*".into()) }),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
        }
    }
}
