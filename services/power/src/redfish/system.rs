//! What a system says of itself (DSP2046, ComputerSystem): only what power and boot need, and nothing it must say.

use serde_json::Value;

use super::answer::link;

/// Whether a machine is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    /// On.
    On,
    /// Off.
    Off,
    /// On the way to either, paused, or not told.
    #[default]
    Changing,
}

/// A boot override, in Redfish's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Override {
    /// `Disabled`, `Once` or `Continuous`.
    pub enabled: String,
    /// What is booted.
    pub target: String,
    /// `UEFI` or `Legacy`.
    pub mode: String,
    /// The targets it takes; empty where it does not say.
    pub targets: Vec<String>,
    /// The modes it takes; empty where it does not say.
    pub modes: Vec<String>,
}

/// A system as it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// Whether it is on.
    pub power: Power,
    /// Where resets are asked for.
    pub reset: Option<String>,
    /// The kinds of reset it takes; empty where it does not say.
    pub reset_types: Vec<String>,
    /// Where that is said, if it is not said here.
    pub action_info: Option<String>,
    /// When it was last reset; empty where it does not say.
    pub reset_time: String,
    /// The override in force.
    pub boot: Override,
    /// Where settings for the next start are made.
    pub settings: Option<String>,
    /// The override that will be in force then.
    pub pending: Option<Override>,
    /// The version of what was read.
    pub etag: Option<String>,
    /// The version of its settings.
    pub settings_etag: Option<String>,
}

impl System {
    /// The system in `body`.
    pub fn read(body: &Value, etag: Option<String>) -> Self {
        let action = body.get("Actions").and_then(|all| all.get("#ComputerSystem.Reset"));
        let reset_types = action.map(|action| allowable(action, "ResetType")).unwrap_or_default();
        let info = action.and_then(|action| action.get("@Redfish.ActionInfo")?.as_str());
        let settings = body.get("@Redfish.Settings");
        Self {
            power: match text(body, "PowerState").as_str() {
                "On" => Power::On,
                "Off" => Power::Off,
                _ => Power::Changing,
            },
            reset: action.and_then(|action| action.get("target")?.as_str()).map(str::to_owned),
            action_info: info.filter(|_| reset_types.is_empty()).map(str::to_owned),
            reset_types,
            reset_time: text(body, "LastResetTime"),
            boot: Override::read(body),
            settings: settings.and_then(|settings| link(settings, "SettingsObject")),
            pending: None,
            etag,
            settings_etag: None,
        }
    }
}

impl Override {
    /// The override of the system, or of its settings object, in `body`.
    pub fn read(body: &Value) -> Self {
        let boot = body.get("Boot").unwrap_or(&Value::Null);
        Self {
            enabled: text(boot, "BootSourceOverrideEnabled"),
            target: text(boot, "BootSourceOverrideTarget"),
            mode: text(boot, "BootSourceOverrideMode"),
            targets: allowable(boot, "BootSourceOverrideTarget"),
            modes: allowable(boot, "BootSourceOverrideMode"),
        }
    }
}

/// The kinds of reset that an ActionInfo resource lists.
pub fn allowable_reset_types(info: &Value) -> Vec<String> {
    let parameters = info.get("Parameters").and_then(Value::as_array);
    let mut parameters = parameters.into_iter().flatten();
    let reset = parameters.find(|parameter| text(parameter, "Name") == "ResetType");
    reset.and_then(|reset| reset.get("AllowableValues")).map(texts).unwrap_or_default()
}

fn text(of: &Value, name: &str) -> String {
    of.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn allowable(of: &Value, name: &str) -> Vec<String> {
    of.get(format!("{name}@Redfish.AllowableValues")).map(texts).unwrap_or_default()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_system_that_says_nothing_is_neither_on_nor_off() {
        assert_eq!(System::read(&json!(null), None), System::default());
        assert_eq!(System::read(&json!({"PowerState": null}), None).power, Power::Changing);
        assert_eq!(
            System::read(&json!({"PowerState": "PoweringOff"}), None).power,
            Power::Changing
        );
    }

    #[test]
    fn kinds_of_reset_are_read_where_they_are_said() {
        let reset = json!({
            "target": "/r", "ResetType@Redfish.AllowableValues": ["On"], "@Redfish.ActionInfo": "/i"
        });
        let here = System::read(&json!({"Actions": {"#ComputerSystem.Reset": reset}}), None);
        assert_eq!((here.reset_types, here.action_info), (vec!["On".into()], None));
        let reset = json!({"target": "/r", "@Redfish.ActionInfo": "/i"});
        let there = System::read(&json!({"Actions": {"#ComputerSystem.Reset": reset}}), None);
        assert_eq!((there.reset_types, there.action_info), (vec![], Some("/i".into())));
        let info = json!({"Parameters": [{"Name": "ResetType", "AllowableValues": ["On", 1]}]});
        assert_eq!(allowable_reset_types(&info), ["On"]);
    }

    proptest! {
        #[test]
        fn whatever_json_comes_is_read(text in "[\\[\\]{}:,\"@a-zA-Z0-9. ]{0,80}") {
            let body: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            System::read(&body, None);
            System::read(&json!({"Boot": body, "Actions": body}), None);
            }
    }
}
