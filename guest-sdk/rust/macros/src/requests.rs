//! The macro `requests!`: the grants that a component requests, as JSON in a custom section.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitStr, Result, Token, braced, bracketed};

use crate::function::{OptionKeys, skip_comma};

/// The keys of requests.
const KEYS: &str =
    "`models`, `memory`, `artifacts`, `state`, `runs`, `sessions`, `tools`, `environment`, `files` and `network`";

/// The requests of a component as JSON, with the keys of grants.
pub struct Requests {
    members: Vec<String>,
    reasons: Vec<String>,
}

impl Parse for Requests {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut members, mut reasons, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            input.parse::<Token![:]>()?;
            let value = value(&key, input)?;
            let name = key.to_string();
            if seen.contains(&name) {
                return Err(Error::new_spanned(&key, format!("`{name}` is requested twice; combine the lists")));
            }
            members.push(member(&name, &value));
            if input.peek(Ident) {
                let because: Ident = input.parse()?;
                if because != "because" {
                    return Err(Error::new_spanned(because, "a reason is written as in `memory: read because \"…\"`"));
                }
                reasons.push(member(&name, &string(input)?));
            }
            seen.push(name);
            skip_comma(input)?;
        }
        Ok(Self { members, reasons })
    }
}

/// Returns the JSON of the value of a key.
fn value(key: &Ident, input: ParseStream<'_>) -> Result<String> {
    match key.to_string().as_str() {
        "models" | "runs" | "tools" | "environment" | "network" => strings(input),
        "memory" | "artifacts" => access(input),
        "state" => members(input, |name, input| match name.to_string().as_str() {
            "read" | "write" => strings(input),
            _ => Err(Error::new_spanned(name, "state is requested as in `state: { read: [\"user:*\"], write: [] }`")),
        }),
        "sessions" => members(input, |name, input| match name.to_string().as_str() {
            "read" | "write" => strings(input),
            _ => Err(Error::new_spanned(
                name,
                "sessions are requested as in `sessions: { read: [\"diary\"], write: [] }`",
            )),
        }),
        "files" => list(input, |input| {
            members(input, |name, input| match name.to_string().as_str() {
                "guest" => string(input),
                "access" => access(input),
                _ => Err(Error::new_spanned(
                    name,
                    "a folder is requested as in `{ guest: \"/data\", access: read }`; the operator chooses the folder of the host",
                )),
            })
        }),
        _ => Err(Error::new_spanned(key, format!("a component can request {KEYS}, not `{key}`"))),
    }
}

fn members(input: ParseStream<'_>, value: fn(&Ident, ParseStream<'_>) -> Result<String>) -> Result<String> {
    let content;
    braced!(content in input);
    let (mut keys, mut members) = (OptionKeys::default(), Vec::new());
    while !content.is_empty() {
        let name = keys.parse(&content)?;
        content.parse::<Token![:]>()?;
        members.push(member(&name.to_string(), &value(&name, &content)?));
        skip_comma(&content)?;
    }
    Ok(format!("{{{}}}", members.join(",")))
}

fn list(input: ParseStream<'_>, item: fn(ParseStream<'_>) -> Result<String>) -> Result<String> {
    let content;
    bracketed!(content in input);
    let items = Punctuated::<String, Token![,]>::parse_terminated_with(&content, item)?;
    Ok(format!("[{}]", items.into_iter().collect::<Vec<_>>().join(",")))
}

fn strings(input: ParseStream<'_>) -> Result<String> {
    list(input, string)
}

fn string(input: ParseStream<'_>) -> Result<String> {
    Ok(json(&input.parse::<LitStr>()?.value()))
}

fn access(input: ParseStream<'_>) -> Result<String> {
    let access: Ident = input.parse()?;
    if access != "read" && access != "write" {
        return Err(Error::new_spanned(&access, format!("it may be `read` or `write`, not `{access}`")));
    }
    Ok(json(&access.to_string()))
}

fn member(name: &str, value: &str) -> String {
    format!("{}:{value}", json(name))
}

/// Returns a string as JSON.
fn json(string: &str) -> String {
    let mut json = String::from('"');
    for letter in string.chars() {
        match letter {
            '"' | '\\' => json.extend(['\\', letter]),
            letter if letter.is_control() => json.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => json.push(letter),
        }
    }
    json.push('"');
    json
}

impl Requests {
    /// Returns the JSON object.
    pub fn json(&self) -> String {
        let mut members = self.members.clone();
        if !self.reasons.is_empty() {
            members.push(member("why", &format!("{{{}}}", self.reasons.join(","))));
        }
        format!("{{{}}}", members.join(","))
    }

    /// Returns a static in the custom section `hatchery:requests`. Other targets than wasm have no such section.
    pub fn expand(&self) -> TokenStream {
        let json = self.json();
        let (size, bytes) = (json.len(), syn::LitByteStr::new(json.as_bytes(), proc_macro2::Span::call_site()));
        quote! {
            const _: () = {
                #[cfg(target_family = "wasm")]
                #[unsafe(link_section = "hatchery:requests")]
                static REQUESTS: [u8; #size] = *#bytes;
            };
        }
    }
}
