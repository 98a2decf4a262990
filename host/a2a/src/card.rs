//! Agent cards: the internal model, the document that both versions read, and a tolerant reader.

use serde_json::{Value, json};

use crate::codec::Version;

/// The binding that both versions share.
pub(crate) const JSON_RPC: &str = "JSONRPC";
pub(crate) const HTTP_JSON: &str = "HTTP+JSON";

/// The description of an agent: its addresses and its capabilities.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentCard {
    pub name: String,
    pub description: String,
    pub version: String,
    /// The first is preferred.
    pub interfaces: Vec<Interface>,
    pub streaming: bool,
    pub push_notifications: bool,
    /// True if authenticated clients can request a card with more.
    pub has_extended_card: bool,
    pub input_modes: Vec<String>,
    pub output_modes: Vec<String>,
    pub skills: Vec<Skill>,
}

/// An interface of an agent: its URL, protocol binding and version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    pub url: String,
    /// `JSONRPC`, `HTTP+JSON` or `GRPC`.
    pub binding: String,
    /// The version of the protocol, such as `1.0`.
    pub version: String,
    /// To be sent with every request.
    pub tenant: Option<String>,
}

/// Something that an agent can do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skill {
    pub id: String,
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
}

impl AgentCard {
    /// Returns the card as one document: clients of version 1.0 read `supportedInterfaces`, clients of 0.3 `url`.
    pub fn to_json(&self) -> Value {
        let interface = |interface: &Interface| {
            let Interface { url, binding, version, tenant } = interface;
            let mut json = json!({"url": url, "protocolBinding": binding, "protocolVersion": version});
            if let (Some(tenant), Some(json)) = (tenant, json.as_object_mut()) {
                json.insert("tenant".into(), tenant.as_str().into());
            }
            json
        };
        let skill = |skill: &Skill| {
            let Skill { id, name, description, tags } = skill;
            json!({"id": id, "name": name, "description": description, "tags": tags})
        };
        let mut card = json!({
            "name": self.name, "description": self.description, "version": self.version,
            "supportedInterfaces": self.interfaces.iter().map(interface).collect::<Vec<_>>(),
            "capabilities": {
                "streaming": self.streaming, "pushNotifications": self.push_notifications,
                "extendedAgentCard": self.has_extended_card,
            },
            "defaultInputModes": self.input_modes, "defaultOutputModes": self.output_modes,
            "skills": self.skills.iter().map(skill).collect::<Vec<_>>(),
        });
        let mut old = self.interfaces.iter().filter(|it| Version::from_name(&it.version) == Some(Version::V0_3));
        if let (Some(old), Some(card)) = (old.next(), card.as_object_mut()) {
            card.insert("protocolVersion".into(), "0.3.0".into());
            card.insert("url".into(), old.url.as_str().into());
            card.insert("preferredTransport".into(), old.binding.as_str().into());
            card.insert("additionalInterfaces".into(), json!([{"url": old.url, "transport": old.binding}]));
            card.insert("supportsAuthenticatedExtendedCard".into(), self.has_extended_card.into());
        }
        card
    }

    /// Reads the card of a peer, in the form of either version.
    ///
    /// # Errors
    /// The reason why it is not a card.
    pub fn from_json(card: &Value) -> Result<Self, String> {
        let text = |key: &str| card.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let texts = |key: &str| {
            let texts = card.get(key).and_then(Value::as_array).into_iter().flatten();
            texts.filter_map(Value::as_str).map(Into::into).collect::<Vec<String>>()
        };
        let can = |key: &str| card.pointer(&format!("/capabilities/{key}")) == Some(&Value::Bool(true));
        if !card.is_object() {
            return Err("it is not a JSON object".into());
        }
        let interfaces = interfaces(card);
        if interfaces.is_empty() {
            return Err("it names no interface, neither in `supportedInterfaces` nor as `url`".into());
        }
        let skills = card.get("skills").and_then(Value::as_array).into_iter().flatten().map(skill);
        Ok(Self {
            name: text("name"),
            description: text("description"),
            version: text("version"),
            interfaces,
            streaming: can("streaming"),
            push_notifications: can("pushNotifications"),
            has_extended_card: can("extendedAgentCard")
                || card.get("supportsAuthenticatedExtendedCard") == Some(&Value::Bool(true)),
            input_modes: texts("defaultInputModes"),
            output_modes: texts("defaultOutputModes"),
            skills: skills.collect(),
        })
    }
}

fn skill(json: &Value) -> Skill {
    let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let tags = json.get("tags").and_then(Value::as_array).into_iter().flatten();
    let tags = tags.filter_map(Value::as_str).map(Into::into).collect();
    Skill { id: text("id"), name: text("name"), description: text("description"), tags }
}

fn interfaces(card: &Value) -> Vec<Interface> {
    let text = |json: &Value, key: &str| json.get(key).and_then(Value::as_str).map(str::to_owned);
    let listed = |key: &str| card.get(key).and_then(Value::as_array).into_iter().flatten();
    let new: Vec<_> = listed("supportedInterfaces")
        .filter_map(|interface| {
            Some(Interface {
                url: text(interface, "url")?,
                binding: text(interface, "protocolBinding")?,
                version: text(interface, "protocolVersion").unwrap_or_else(|| "1.0".into()),
                tenant: text(interface, "tenant").filter(|tenant| !tenant.is_empty()),
            })
        })
        .collect();
    if !new.is_empty() {
        return new;
    }
    let version = text(card, "protocolVersion").unwrap_or_else(|| "0.3.0".into());
    let preferred = text(card, "url").map(|url| {
        let binding = text(card, "preferredTransport").unwrap_or_else(|| JSON_RPC.into());
        Interface { url, binding, version: version.clone(), tenant: None }
    });
    let additional = listed("additionalInterfaces").filter_map(|interface| {
        let (url, binding) = (text(interface, "url")?, text(interface, "transport")?);
        Some(Interface { url, binding, version: version.clone(), tenant: None })
    });
    preferred.into_iter().chain(additional).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(version: &str) -> Interface {
        Interface {
            url: "https://a.example/rpc".into(),
            binding: JSON_RPC.into(),
            version: version.into(),
            tenant: None,
        }
    }

    #[test]
    fn one_document_serves_clients_of_both_versions() {
        let card = AgentCard {
            name: "dice".into(),
            description: "Rolls dice.".into(),
            version: "1".into(),
            interfaces: vec![interface("1.0"), interface("0.3")],
            streaming: true,
            input_modes: vec!["text/plain".into()],
            skills: vec![Skill { id: "roll".into(), tags: vec!["llm".into()], ..Skill::default() }],
            ..AgentCard::default()
        };
        let json = card.to_json();
        assert_eq!(AgentCard::from_json(&json), Ok(card.clone()));
        let mut old = json;
        old.as_object_mut().unwrap().remove("supportedInterfaces");
        let read = AgentCard::from_json(&old).unwrap();
        assert_eq!(read.interfaces[0], Interface { version: "0.3.0".into(), ..interface("0.3") });
    }

    #[test]
    fn a_card_of_version_0_3_may_leave_its_transport_out() {
        let card = AgentCard::from_json(&json!({"name": "a", "url": "https://a.example"})).unwrap();
        let Interface { binding, version, .. } = &card.interfaces[0];
        assert_eq!((binding.as_str(), version.as_str()), (JSON_RPC, "0.3.0"));
    }

    #[test]
    fn what_is_not_a_card_is_refused() {
        assert_eq!(AgentCard::from_json(&json!([])), Err("it is not a JSON object".into()));
        let error = AgentCard::from_json(&json!({"name": "a"})).unwrap_err();
        assert_eq!(error, "it names no interface, neither in `supportedInterfaces` nor as `url`");
    }
}
