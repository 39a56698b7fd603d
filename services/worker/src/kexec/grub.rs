//! Finds the kernel that a grub.cfg boots by default, without I/O.
//!
//! The script is interpreted as in GRUB: variables are set, conditions on them are evaluated, and menu entries are
//! collected. Then the body of the default entry is interpreted. All other commands are ignored, and false as conditions:
//! there is no saved environment, and no file is read.

use std::collections::BTreeMap;

use super::script::{Piece, Statement, Words, parse};

/// Maximum length of a variable's value in bytes: a script could append a variable to itself repeatedly.
const MAX_VALUE_BYTES: usize = 4096;

/// A kernel in GRUB's configuration, with paths in the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BootEntry {
    pub(super) kernel: String,
    pub(super) initrds: Vec<String>,
    /// The kernel's arguments.
    pub(super) line: String,
}

/// Returns the kernel that `config` boots by default, or `None` if that is not Linux.
pub(super) fn default_boot(config: &str) -> Option<BootEntry> {
    let script = parse(config);
    let (mut grub, mut menu) = (Grub::new(), Vec::new());
    grub.interpret(&script, &mut menu);
    let default = grub.variables.get("default").cloned().unwrap_or_default();
    if let Some(entry) = choose(&menu, &default) {
        grub.boot = None;
        grub.interpret(entry.body, &mut Vec::new());
    }
    // Without a menu, this is the kernel set by the script itself.
    grub.boot
}

/// An entry of the menu.
#[derive(Debug)]
struct MenuEntry<'a> {
    title: String,
    id: Option<String>,
    body: &'a [Statement],
    /// Entries of a submenu.
    entries: Vec<MenuEntry<'a>>,
}

/// Returns the entry that `default` selects, or the first entry if none matches. `default` is a number from 0, a title or an
/// id; for an entry in a submenu, several of them separated by `>`.
fn choose<'a, 'b>(menu: &'b [MenuEntry<'a>], default: &str) -> Option<&'b MenuEntry<'a>> {
    let (name, rest) = default.split_once('>').unwrap_or((default, ""));
    let named = |entry: &&MenuEntry<'_>| entry.title == name || entry.id.as_deref() == Some(name);
    let numbered = name.parse().ok().and_then(|number: usize| menu.get(number));
    let entry = numbered.or_else(|| menu.iter().find(named)).or(menu.first())?;
    if entry.entries.is_empty() { Some(entry) } else { choose(&entry.entries, rest) }
}

/// The state of the interpreter.
struct Grub {
    variables: BTreeMap<String, String>,
    boot: Option<BootEntry>,
}

impl Grub {
    fn new() -> Self {
        // Every GRUB of the last ten years sets this variable.
        let variables = [("feature_menuentry_id".to_owned(), "y".to_owned())].into();
        Self { variables, boot: None }
    }

    /// Interprets `script`, and adds its menu entries to `menu`.
    fn interpret<'a>(&mut self, script: &'a [Statement], menu: &mut Vec<MenuEntry<'a>>) {
        for statement in script {
            match statement {
                Statement::Command(command) => self.command(command),
                Statement::If(branches, otherwise) => {
                    let holds = branches.iter().find(|(condition, _)| self.holds(condition));
                    self.interpret(holds.map_or(otherwise, |(_, then)| then), menu);
                }
                Statement::Block(head, body) => {
                    let words = self.words(head);
                    match words.first().map(String::as_str) {
                        Some("menuentry") => menu.push(entry(&words, body, Vec::new())),
                        Some("submenu") => {
                            let mut entries = Vec::new();
                            self.interpret(body, &mut entries);
                            menu.push(entry(&words, body, entries));
                        }
                        // Functions are not called.
                        _ => {}
                    }
                }
            }
        }
    }

    fn command(&mut self, command: &Words) {
        let words = self.words(command);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["set", assignment] | [assignment] => self.assign(assignment),
            ["linux" | "linux16" | "linuxefi", kernel, arguments @ ..] => {
                let (kernel, line) = (path(kernel), arguments.join(" "));
                self.boot = Some(BootEntry { kernel, line, initrds: Vec::new() });
            }
            ["initrd" | "initrd16" | "initrdefi", initrds @ ..] => {
                if let Some(boot) = &mut self.boot {
                    boot.initrds = initrds.iter().map(|initrd| path(initrd)).collect();
                }
            }
            _ => {}
        }
    }

    fn assign(&mut self, assignment: &str) {
        if let Some((name, value)) =
            assignment.split_once('=').filter(|it| it.1.len() <= MAX_VALUE_BYTES)
        {
            self.variables.insert(name.into(), value.into());
        }
    }

    /// True if the last command of `condition` succeeds.
    fn holds(&self, condition: &[Statement]) -> bool {
        let Some(Statement::Command(command)) = condition.last() else { return false };
        let words = self.words(command);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["true"] => true,
            ["[", arguments @ .., "]"] | ["test", arguments @ ..] => test(arguments),
            _ => false,
        }
    }

    /// Expands the variables in `command`.
    fn words(&self, command: &Words) -> Vec<String> {
        let mut words = Vec::new();
        for word in command {
            let (mut text, mut is_word) = (String::new(), word.quoted);
            for piece in &word.pieces {
                match piece {
                    Piece::Text(piece) => text.push_str(piece),
                    Piece::Variable { name, quoted: true } => text.push_str(self.value(name)),
                    Piece::Variable { name, quoted: false } => {
                        let mut parts = self.value(name).split_whitespace();
                        text.push_str(parts.next().unwrap_or_default());
                        for part in parts {
                            words.push(std::mem::replace(&mut text, part.to_owned()));
                        }
                    }
                }
            }
            is_word |= !text.is_empty();
            words.extend(is_word.then_some(text));
        }
        words
    }

    fn value(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }
}

fn entry<'a>(
    words: &[String],
    body: &'a [Statement],
    entries: Vec<MenuEntry<'a>>,
) -> MenuEntry<'a> {
    let id = words.iter().position(|word| word == "--id").and_then(|at| words.get(at + 1));
    MenuEntry { title: words.get(1).cloned().unwrap_or_default(), id: id.cloned(), body, entries }
}

/// Removes GRUB's device, such as `(hd0,gpt2)`, from the beginning of `path`.
fn path(path: &str) -> String {
    let device = path.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    device.map_or(path, |(_, path)| path).to_owned()
}

/// Evaluates GRUB's `test` command for strings. File tests are false.
fn test(arguments: &[&str]) -> bool {
    match arguments {
        ["!", rest @ ..] => !test(rest),
        ["-n", text] | [text] => !text.is_empty(),
        ["-z", text] => text.is_empty(),
        [one, "=" | "==", other] => one == other,
        [one, "!=", other] => one != other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kernel(config: &str) -> Option<String> {
        default_boot(config).map(|boot| boot.kernel)
    }

    /// Returns two entries and a submenu of two more, after `before`.
    fn menu(before: &str) -> String {
        let entry =
            |name: &str| format!("menuentry '{name}' --id id-{name} {{\n linux /{name} ro\n}}\n");
        let (a, b, c, d) = (entry("a"), entry("b"), entry("c"), entry("d"));
        format!("{before}\n{a}submenu 'more' --id id-more {{\n{b}{c}}}\n{d}")
    }

    #[test]
    fn the_default_is_a_number_a_title_or_an_id() {
        for (default, expected) in [
            ("", "/a"),
            ("set default=0", "/a"),
            ("set default=\"2\"", "/d"),
            ("set default=1", "/b"),
            ("set default='1>1'", "/c"),
            ("set default='more>c'", "/c"),
            ("set default=id-more>id-c", "/c"),
            ("set default=d", "/d"),
            ("set default=10", "/a"),
            ("set default=gone", "/a"),
        ] {
            assert_eq!(kernel(&menu(default)).as_deref(), Some(expected), "{default}");
        }
    }

    #[test]
    fn arguments_and_initrds_belong_to_the_entry() {
        let config = "set opts='ro quiet'\nmenuentry x {\n\
            \tlinux\t($root)/vmlinuz root=UUID=a $opts $vt_handoff\n\
            \tinitrd\t(hd0,gpt2)/ucode.img /initrd.img\n}";
        let initrds = vec!["/ucode.img".to_owned(), "/initrd.img".to_owned()];
        let line = "root=UUID=a ro quiet".to_owned();
        assert_eq!(
            default_boot(config),
            Some(BootEntry { kernel: "/vmlinuz".into(), initrds, line })
        );
    }

    #[test]
    fn conditions_of_an_ubuntu_cloud_image_are_evaluated() {
        let config = "if [ -s $prefix/grubenv ]; then\n  set have_grubenv=true\n  load_env\nfi\n\
            if [ \"${next_entry}\" ] ; then\n  set default=\"${next_entry}\"\nelse\n  set default=\"0\"\nfi\n\
            if [ x\"${feature_menuentry_id}\" = xy ]; then\n  menuentry_id_option=\"--id\"\nelse\n  menuentry_id_option=\"\"\nfi\n\
            function gfxmode {\n  set gfxpayload=\"${1}\"\n}\n\
            menuentry 'Ubuntu' --class os $menuentry_id_option 'gnulinux-simple-a' {\n\
            if [ \"${initrdfail}\" = 1 ]; then\n linux /boot/a with\n initrd /boot/i\n\
            else\n linux /boot/a without\n fi\n initrdfail\n}";
        let boot = default_boot(config).unwrap();
        assert_eq!((boot.line.as_str(), boot.initrds.len()), ("without", 0));
    }

    #[test]
    fn without_a_menu_the_commands_of_the_script_are_used() {
        let boot = default_boot("linux /vmlinuz console=ttyS0\ninitrd /initrd\nboot\n").unwrap();
        assert_eq!(
            (boot.kernel.as_str(), boot.initrds.as_slice()),
            ("/vmlinuz", &["/initrd".to_owned()][..])
        );
    }

    #[test]
    fn an_entry_without_linux_has_no_kernel() {
        let config = "set default=1\nmenuentry a {\nlinux /a\n}\nmenuentry 'Setup' {\nfwsetup\n}";
        assert_eq!(kernel(config), None);
        assert_eq!(kernel(""), None);
    }

    #[test]
    fn a_variable_appended_to_itself_stays_limited() {
        let config = format!(
            "set a=xxxxxxxx\n{}menuentry x {{\nlinux /a $a\n}}",
            "set a=$a$a\n".repeat(100)
        );
        assert!(default_boot(&config).unwrap().line.len() <= MAX_VALUE_BYTES);
    }

    proptest! {
        #[test]
        fn no_configuration_makes_the_interpreter_panic(
            text in "(menuentry|submenu|if|then|fi|set|linux|default=1|[ \\n{};$a'>]){0,40}|\\PC{0,60}",
        ) {
            let _either = default_boot(&text);
        }
    }
}
