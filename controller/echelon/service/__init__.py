"""The controller as a service: jobs in by REST, switches kept at what the policy wants, nothing acknowledged lost."""
