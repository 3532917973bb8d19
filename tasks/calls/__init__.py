"""Paid calls: limited, reserved in the budget, journaled, retried, scored."""
