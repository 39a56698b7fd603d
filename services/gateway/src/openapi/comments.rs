//! The comments of the proto files.

use std::collections::HashMap;

use prost_reflect::{
    DescriptorPool, EnumDescriptor, EnumValueDescriptor, FieldDescriptor, MessageDescriptor,
    MethodDescriptor, OneofDescriptor, ServiceDescriptor,
};

/// Comments by file and by the path of what they are about, as `SourceCodeInfo` numbers it.
#[derive(Clone, Debug)]
pub struct Comments(HashMap<(String, Vec<i32>), String>);

impl Comments {
    /// Collects the comments of the files in `pool`.
    pub fn new(pool: &DescriptorPool) -> Self {
        let mut comments = HashMap::new();
        for file in pool.files() {
            let proto = file.file_descriptor_proto();
            for location in proto.source_code_info.iter().flat_map(|info| &info.location) {
                let text = flowing(location.leading_comments());
                if !text.is_empty() {
                    comments.insert((file.name().to_owned(), location.path.clone()), text);
                }
            }
        }
        Self(comments)
    }

    fn get(&self, file: &str, path: &[i32]) -> &str {
        let found = self.0.get(&(file.to_owned(), path.to_vec()));
        found.map(String::as_str).unwrap_or_default()
    }

    /// Returns the comment of a service; empty if it has none.
    pub fn of_service(&self, service: &ServiceDescriptor) -> &str {
        self.get(service.parent_file().name(), service.path())
    }

    /// Returns the comment of a call.
    pub fn of_call(&self, call: &MethodDescriptor) -> &str {
        self.get(call.parent_file().name(), call.path())
    }

    /// Returns the comment of a message.
    pub(super) fn of_message(&self, message: &MessageDescriptor) -> &str {
        self.get(message.parent_file().name(), message.path())
    }

    /// Returns the comment of a field.
    pub(super) fn of_field(&self, field: &FieldDescriptor) -> &str {
        self.get(field.parent_file().name(), field.path())
    }

    /// Returns the comment of a choice of fields.
    pub(super) fn of_oneof(&self, oneof: &OneofDescriptor) -> &str {
        self.get(oneof.parent_file().name(), oneof.path())
    }

    /// Returns the comment of an enum.
    pub(super) fn of_enum(&self, kind: &EnumDescriptor) -> &str {
        self.get(kind.parent_file().name(), kind.path())
    }

    /// Returns the comment of a value of an enum.
    pub(super) fn of_value(&self, value: &EnumValueDescriptor) -> &str {
        self.get(value.parent_file().name(), value.path())
    }
}

/// Returns the first sentence of a comment.
pub fn first_sentence(text: &str) -> &str {
    let paragraph = text.lines().next().unwrap_or_default();
    match paragraph.find(". ") {
        Some(end) => &paragraph[..end],
        None => paragraph.trim_end_matches('.'),
    }
}

/// Returns a comment with its lines joined, except between paragraphs.
fn flowing(comment: &str) -> String {
    let paragraphs = comment.split("\n\n").map(|paragraph| {
        paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
    });
    paragraphs.collect::<Vec<_>>().join("\n\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_paragraphs_are_kept() {
        assert_eq!(flowing(" One\n line.\n\n Another.\n"), "One line.\n\nAnother.");
        assert_eq!(first_sentence("One sentence. Another one."), "One sentence");
        assert_eq!(first_sentence("Only one."), "Only one");
    }
}
