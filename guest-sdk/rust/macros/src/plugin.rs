//! `#[plugin]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Error, ImplItem, ImplItemFn, ItemImpl, Result};

use crate::function::{NameOption, check, last_name, snake_case};
use crate::point::Point;

pub struct Options {
    name: NameOption,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        Ok(Self { name: NameOption::parse("plugin", input)? })
    }
}

pub fn expand(options: Options, hooks: ItemImpl) -> Result<TokenStream> {
    if let Some((_, of, _)) = &hooks.trait_ {
        return Err(Error::new_spanned(of, "a plugin's hooks stand in an `impl` of its type, without a trait"));
    }
    if !hooks.generics.params.is_empty() {
        return Err(Error::new_spanned(&hooks.generics, "a plugin cannot be generic"));
    }
    let ty = &hooks.self_ty;
    let Some(type_name) = last_name(ty) else {
        return Err(Error::new_spanned(ty, "a plugin is a type of its own, such as `struct Censor;`"));
    };
    let name = options.name.or(snake_case(&type_name));
    let fields = hooks.items.iter().map(|item| hook(item, ty)).collect::<Result<Vec<_>>>()?;
    Ok(quote! {
        #hooks

        impl ::hatchery_guest::Plugin for #ty {
            const NAME: &'static str = #name;
            const HOOKS: ::hatchery_guest::__private::Hooks =
                ::hatchery_guest::__private::Hooks { #(#fields,)* ..::hatchery_guest::__private::Hooks::NONE };
        }
    })
}

/// The field that holds a hook.
fn hook(item: &ImplItem, ty: &syn::Type) -> Result<TokenStream> {
    let ImplItem::Fn(ImplItemFn { sig, .. }) = item else {
        return Err(Error::new_spanned(item, "here stand hooks only; put the rest in an `impl` of its own"));
    };
    let ident = &sig.ident;
    let Some(point) = Point::of_plugin(ident) else {
        let message = format!(
            "`{ident}` is no hook; hooks are {}; put other functions in an `impl` of their own",
            Point::plugin_names()
        );
        return Err(Error::new_spanned(ident, message));
    };
    if let Some(receiver) = sig.receiver() {
        let message = "a hook takes no `self`: nothing in a plugin outlives a call; keep it in the session's state";
        return Err(Error::new_spanned(receiver, message));
    }
    check(sig, "hook")?;
    let closure = point.closure("hook", sig, &quote!(<#ty>::#ident))?;
    Ok(quote!(#ident: ::core::option::Option::Some(#closure)))
}
