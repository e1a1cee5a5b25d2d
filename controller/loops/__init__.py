"""The work behind the controller's Lambda handlers: gather facts, decide, and apply the decision. The code in this
package calls AWS only through the interfaces in the module `ports`.
"""
