# A second adapter on another network, which comes first in the list of devices.
set_up() { rdma link add alt0 type rxe netdev eth0; }
undo() { rdma link delete alt0; }
