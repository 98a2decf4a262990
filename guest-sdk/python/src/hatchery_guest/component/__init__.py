"""The implementation of the contract. Only a component can import these modules, because they use the generated ``wit_world``."""
